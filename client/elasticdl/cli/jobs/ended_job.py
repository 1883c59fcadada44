"""A job that has ended, with the versions of its model that are kept: to export one or to start another job from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from elasticdl.cli.jobs.former_run import FormerRun, former_run
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.resumption import recover_without_log
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.processes.imports import use_numba_cache
from elasticdl.master.core import State
from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.errors import PermanentError, ProtocolError, UserError
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.storage import ObjectStore, display, open_store
from elasticdl.views import reading

if TYPE_CHECKING:
    from elasticdl.ps.snapshots.kept_versions import KeptVersion


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """A job that has ended.

    Attributes:
        former: the job, as far as it is known without its log.
        state: as its log describes it; empty if the log is lost.
    """

    former: FormerRun
    spec: JobSpec
    state: State
    registers: Sequence[PsRegister]
    store: ObjectStore

    @cached_property
    def versions(self) -> list[KeptVersion]:
        """The kept versions of its model, the newest first."""
        use_numba_cache()
        from elasticdl.ps.snapshots.kept_versions import kept_versions  # Compiled parts of ps: most jobs need none.

        return kept_versions(self.store, self.spec, self.registers)

    def version(self, step: int | None = None) -> KeptVersion:
        """The version of a step; None: the newest."""
        if not self.versions:
            raise UserError(
                f"job {self.former.job} has no complete snapshot in {display(self.spec.storage)}",
                hint="A job saves its first snapshot when its parameter servers have the initial weights.",
            )
        if step is None:
            return self.versions[0]
        for version in self.versions:
            if version.step == step:
                return version
        hint = list_of_versions(self.versions)
        raise UserError(f"job {self.former.job} keeps no model of step {step:,}", hint=hint, usage=True)

    def initial_model(self) -> InitialModel:
        """The newest version, as the start of another job."""
        return replace(self.version().as_initial_model(self.former.job), adapted=self.spec.model.adapted)


def list_of_versions(versions: Sequence[KeptVersion]) -> str:
    """A sentence that names the steps of some versions."""
    return f"Versions that are kept: step {', '.join(str(version.step) for version in reversed(versions))}."


def read_ended_job(run: RunDirectory, record: JobRecord) -> EndedJob:
    """Read the log and the registers of a job; without a log, its snapshots. The caller holds the folder's lock."""
    return asyncio.run(_read(run, record))


async def _read(run: RunDirectory, record: JobRecord) -> EndedJob:
    async with open_bus(run, held=True) as bus:
        return await read_from(bus, former_run(run, record))


async def read_from(bus: Bus, former: FormerRun) -> EndedJob:
    """Read the log and the registers of a job; without a log, its snapshots."""
    store = open_store(former.storage)
    try:
        state = (await reading.exact(bus)).state
    except (PermanentError, ProtocolError):
        state = State()
    if state.spec is not None:
        entries = [await bus.registers.read(ps) for ps in state.holders]
        registers = [decode_register(entry.value) for entry in entries if entry]
        return EndedJob(former=former, spec=await read_spec(bus.log), state=state, registers=registers, store=store)
    recovered = await recover_without_log(former, store)
    registers = [*recovered.registers.values()]
    return EndedJob(former=former, spec=recovered.spec, state=state, registers=registers, store=store)
