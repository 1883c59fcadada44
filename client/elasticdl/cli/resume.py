"""``elasticdl resume``: go on with a job from its last snapshots."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from elasticdl.cli import run_directory
from elasticdl.cli.launcher.following import read_state
from elasticdl.cli.model_digest import changed_files, file_digests
from elasticdl.cli.open_log import open_bus
from elasticdl.cli.run_directory import JobRecord, RunDirectory
from elasticdl.cli.running import run_job
from elasticdl.master.core import State
from elasticdl.shared.commands import JobState
from elasticdl.shared.errors import UserError
from elasticdl.shared.events import JobResumed
from elasticdl.shared.job import JobSpec
from elasticdl.shared.storage import ObjectNotFoundError, display, open_store


def resume(job: str, root: Path, report: Path | None, *, debug: bool) -> int:
    """Run the command.

    Returns:
        Its exit code.

    Raises:
        UserError: the job is running, is finished, or its model file was changed.
    """
    started_s = time.time()
    run = run_directory.find(root, job)
    record = run.read()
    _check_model(run, record)
    with run.lock():
        pass  # Only to say that it is running, if it is, before anything else is said.
    state = asyncio.run(_state(run))
    if state.spec is None:
        raise UserError(f"job {run.job} ended before it had begun", hint="Train anew; nothing is lost.")
    if state.job_state is JobState.SUCCEEDED:
        raise UserError(f"job {run.job} is finished: there is nothing to go on with")
    _check_data(run, state.job)
    run.create()
    with run.lock():
        record = replace(record, launcher_pid=os.getpid(), state=JobState.STARTING.value, message="")
        run.write(record)
        done = len(state.training.complete) if state.training else 0
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.print(
            f"job {run.job} goes on: {done:,} of {state.plan.tasks:,} tasks were finished; logs in {run.logs}"
        )
        opening = JobResumed(reason=f"resumed after {state.job_state.value}")
        return run_job(run, record, state.spec, opening, started_s=started_s, report=report, debug=debug)


def _check_model(run: RunDirectory, record: JobRecord) -> None:
    """Refuse a model that is not the one that was being trained."""
    path = Path(record.model.rpartition(":")[0])
    if not record.model_files:
        return
    if not path.is_file():
        raise UserError(f"the model file {path} of job {run.job} is gone", hint="Put it back, or train anew.")
    changed = changed_files(record.model_files, file_digests(path))
    if changed:
        names = ", ".join(str(path.parent / name) for name in changed)
        raise UserError(
            f"{names} changed since job {run.job} was planned",
            hint="Undo the change to go on with this job, or train the new model with: elasticdl train",
        )


def _check_data(run: RunDirectory, spec: JobSpec) -> None:
    """Refuse data that is not what was planned; a ledger over other records would say nothing."""
    for plan in (spec.plan, spec.validation):
        for source in plan.sources if plan else ():
            try:
                info = open_store(source.uri).info(source.uri)
            except ObjectNotFoundError as error:
                raise UserError(f"{display(source.uri)} of job {run.job} is gone", hint="Put it back.") from error
            if (info.size_bytes, info.etag) != (source.size_bytes, source.etag):
                raise UserError(
                    f"{display(source.uri)} changed since job {run.job} was planned",
                    hint="Put the old file back to go on with this job, or train anew with: elasticdl train",
                )


async def _state(run: RunDirectory) -> State:
    async with open_bus(run) as bus:
        return await read_state(bus)
