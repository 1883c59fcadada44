"""The master on the virtual clock: the real shell, outbox and core; and the launcher that keeps the processes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.sim.process import EXIT_REFUSED, Process
from tests.sim.ps import PsProcess
from tests.sim.worker import WorkerProcess

from elasticdl.cli.jobs.open_log import lost_part
from elasticdl.cli.local.exits import exit_cause
from elasticdl.master.core import fold
from elasticdl.master.service import Master, MasterOptions
from elasticdl.ps.snapshots.job_recovery import recover_job, restore_registers, settle_placement
from elasticdl.shared.bus.reading import open_run
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.commands import Command, StartPod, StopPod
from elasticdl.shared.messages.events import (
    Event,
    GroupLedger,
    JobResumed,
    JobSubmitted,
    PodExited,
    PodStarted,
)
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.names import PodName, Service

if TYPE_CHECKING:
    from tests.sim.world import World

LAUNCHER, MASTER = PodName("launcher"), PodName("master")
BOOT_S = {Service.MASTER: 0.3, Service.PS: 0.3, Service.WORKER: 0.6}
MASTER_PAUSE_S = 0.25
AGAIN_S = 0.5


class MasterProcess(Process):
    """One instance of the master."""

    service = Service.MASTER

    def __init__(self, world: World) -> None:
        super().__init__(world, MASTER)
        options = MasterOptions(snapshot_records=1 + 7 * self.pid % 40)
        self.master = Master(self.bus, self.clock, self.incarnation, self._read_ledgers, options)

    async def main(self) -> None:
        self.spawn(self.heartbeat)
        await self.master.run()
        self.world.succeeded(self)

    def _read_ledgers(self, manifest: str) -> tuple[GroupLedger, ...]:
        return read_manifest(self.world.store, manifest).ledgers


class Launcher(Process):
    """Starts, stops and restarts processes, as the local launcher does."""

    service = Service.LAUNCHER

    def __init__(self, world: World, *, resumed: bool, ps: int = 0) -> None:
        super().__init__(world, LAUNCHER)
        self.kept: dict[PodName, Process] = {}
        self._resumed = resumed
        self._ps = ps
        self._notes: asyncio.Queue[Event] = asyncio.Queue()

    async def main(self) -> None:
        self.probe("starts")
        for event in await self._opening():
            await open_run(self.bus.log, self.envelopes.envelope(event))
        await self.bus.signals.serve_orders(LAUNCHER, self._obey)
        self._start_master()
        while True:
            await self.say(await self._notes.get())

    async def _opening(self) -> list[Event]:
        """Follows ``elasticdl resume``: what the snapshots tell counts, where the log does not know it."""
        store, spec = self.world.store, self.world.job.spec
        submitted = JobSubmitted(spec=spec)
        if not self._resumed:
            return [submitted]
        while store.away:
            await asyncio.sleep(AGAIN_S)  # The user types it again.
        recovered = recover_job(store, spec.storage, spec.job)
        begun = (state := fold(self.world.records())).spec is not None
        if not begun and recovered is None:
            return [submitted]  # Nothing was learned: the user trains anew.
        lost = lost_part(self.world.last_record(), self.world.log_end)
        now_s = self.clock.now()
        placement = await settle_placement(self.bus.registers, store, spec, recovered, lost, now_s)
        if placement is None:
            await restore_registers(self.bus.registers, store, spec, recovered)
        await self.bus.tasks.purge()
        adds = self.world.adds_epochs
        resumed = JobResumed(
            reason="resumed",
            lost=lost,
            ps=self._ps or (len(placement.holders) if placement else 0),
            placement=placement.version if placement else 0,
            owners=placement.owners if placement else (),
            epochs=self.world.job.epochs if adds and (lost or not begun or state.is_final) else 0,
        )
        return [resumed] if begun else [JobSubmitted(spec=recovered.spec if recovered else spec), resumed]

    def pass_on(self, event: Event) -> None:
        """Append what somebody else has typed."""
        self._notes.put_nowait(event)

    def exited(self, process: Process, exit_code: int) -> None:
        """A process that is kept has ended, or is taken for dead."""
        if self.kept.get(process.name) is not process:
            return
        del self.kept[process.name]
        if process.service is Service.MASTER:
            if exit_code == EXIT_REFUSED:
                self.world.fail(f"{process.incarnation} ended the job")
            elif exit_code != 0:
                self.world.loop.call_later(MASTER_PAUSE_S, self._start_master, context=self.instance.context)
            return
        event = PodExited(
            pod=process.name,
            service=process.service,
            pid=process.pid,
            cause=exit_cause(exit_code),
            exit_code=exit_code,
            running_batches=process.running_batches if isinstance(process, WorkerProcess) else (),
        )
        self._notes.put_nowait(event)

    def _start_master(self) -> None:
        self._start(MasterProcess(self.world))

    async def _obey(self, command: Command, cause: str) -> None:
        match command:
            case StartPod(pod=pod, service=service):
                if pod in self.kept:
                    return
                process = PsProcess(self.world, pod) if service is Service.PS else WorkerProcess(self.world, pod)
                self._notes.put_nowait(PodStarted(pod=pod, service=service, pid=process.pid))
                self._start(process)
            case StopPod(pod=pod, kill=kill):
                kept = self.kept.get(pod)
                if kept and kill:
                    kept.end(-9)
                elif kept:
                    self.world.loop.call_soon(kept.terminate, context=kept.instance.context)
            case _:
                raise PermanentError(f"the launcher takes no {type(command).__name__}")

    def _start(self, process: Process) -> None:
        self.kept[process.name] = process
        self.world.note(f"{process.incarnation} starts")
        self.world.processes.append(process)
        boot_s = BOOT_S[process.service] * (0.5 + self.world.random.random())
        self.world.loop.call_later(boot_s, process.start, context=process.instance.context)
