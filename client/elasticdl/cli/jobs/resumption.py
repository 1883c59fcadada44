"""What is left of a job that ended: its snapshots where the log is lost, and what a resume appends to the log."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace

from elasticdl.cli.jobs.former_run import FormerRun
from elasticdl.cli.jobs.resume_changes import ResumeChanges, check_changes, check_skip
from elasticdl.cli.jobs.run_directory import NOTHING_TO_RESUME, LogEnd
from elasticdl.master.core import State
from elasticdl.ps.snapshots.job_recovery import (
    RecoveredJob,
    recover_job,
    restore_placement,
    restore_registers,
    settle_placement,
)
from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.bus.reading import record_at
from elasticdl.shared.errors import REBUILD, PermanentError, ProtocolError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Event, JobResumed, JobSubmitted, LogRecord, LostLog
from elasticdl.shared.model.manifests import DamagedError
from elasticdl.shared.names import NOBODY, Incarnation, JobId
from elasticdl.shared.storage import ObjectStore, display
from elasticdl.shared.words import count
from elasticdl.views import reading
from elasticdl.views.history import lost_history
from elasticdl.views.reading import check_complete


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """How a job continues; ``state``: as its log describes it; empty if the log is lost."""

    spec: JobSpec
    state: State
    opening: tuple[Event, ...]

    @property
    def start_line(self) -> str:
        """What users read when the run starts."""
        if self.state.spec is None:
            return f"Resuming job {self.spec.job} from its snapshots, because its event log is lost."
        finished = len(self.state.training.complete) if self.state.training else 0
        return f"Resuming job {self.spec.job}: {finished:,} of {count(self.spec.plan.tasks, 'task')} finished."


async def plan_next_run(
    bus: Bus, store: ObjectStore, former: FormerRun, changes: ResumeChanges, run: Incarnation = NOBODY
) -> NextRun:
    """Read the log, and make sure that the key-value registers of the ps name existing snapshots.

    With ``changes.rebuild_bus`` the streams are removed first, once there is a snapshot that says what the job is.

    Args:
        run: that is to be opened, if a former process may have begun to.

    Raises:
        UserError: nothing is left to resume from or to train, or a change is not possible.
    """
    recovered = None
    if changes.rebuild_bus:
        recovered = await recover_without_log(former, store)
        await bus.rebuild()
    state, left = await _log_of(bus, former, run)
    spec = state.spec
    if spec is None:
        recovered = recovered or await recover_without_log(former, store)
        spec = recovered.spec
    has_finished = state.job_state is JobState.SUCCEEDED
    check_changes(changes, former.job, former.arguments, spec.kind, has_finished=has_finished)
    check_skip(changes, former.arguments, state)
    if changes.ps and spec.has_ring:
        raise UserError(
            f"job {former.job} uses AllreduceStrategy, so the number of its parameter servers can't be changed",
            usage=True,
        )
    lost = lost_part(left, former.log_end)
    if lost:
        lost = replace(lost, history=lost_history(state, former.history))
    # A log that is lost, or lacks its end, may lack the resume that added epochs.
    former_epochs = former.epochs if lost or state.spec is None else 0
    if changes.epochs:
        _check_epochs(former.job, spec, max(spec.plan.epochs, former_epochs), changes.epochs)
    resumed = JobResumed(
        reason=f"resumed after {state.job_state.value}" if state.spec else "resumed without its log",
        lost=lost,
        ps=changes.ps,
        epochs=changes.epochs or former_epochs,
        output=changes.output,
        continues=state.run,
        skipped=changes.skipped,
    )
    await restore_placement(bus.registers, state.placement)
    resumed = await resume_event(bus.registers, store, spec, recovered, resumed, time.time())
    opening = (resumed,) if state.spec else (JobSubmitted(spec=spec), resumed)
    if resumed.epochs:
        spec = spec.with_epochs(resumed.epochs)
    return NextRun(spec=replace(spec, output=changes.output or spec.output), state=state, opening=opening)


async def _log_of(bus: Bus, former: FormerRun, run: Incarnation) -> tuple[State, LogRecord | None]:
    """The job and the last record of its log; empty and None: the log is lost. Arguments as of ``plan_next_run``."""
    try:
        state = (await reading.exact(bus)).state
        check_complete(state)
        if run and state.run == run:
            return State(), None  # A process has repeated the submission of the lost log, and then ended.
        return state, await record_at(bus.log, await bus.log.last_seq())
    except (PermanentError, ProtocolError) as error:
        raise UserError(
            f"the event log of job {former.job} can't be read: {error}",
            hint=f"To resume from the snapshots, without the log: elasticdl resume {former.arguments} {REBUILD}",
        ) from error


async def purge_former_tasks(bus: Bus, run: Incarnation) -> None:
    """Empty the queue before the next run begins, unless another process has opened it meanwhile."""
    # First what may go, then the check: this process may be frozen in between, and the tasks of a run that another
    # process opens then are queued later.
    queued = await bus.tasks.last_seq()
    if (await reading.exact(bus)).state.run == run:
        await bus.tasks.purge(queued)


async def recover_without_log(former: FormerRun, store: ObjectStore) -> RecoveredJob:
    """A job whose log is lost, from its snapshots.

    Raises:
        UserError: none were found, or the object with the job's specification is damaged.
    """
    try:
        recovered = await asyncio.to_thread(recover_job, store, former.storage, former.job)
    except DamagedError as error:
        raise UserError(
            f"job {former.job} has no event log, and no snapshot says what the job is: {error}",
            hint=f"Restore {display(error.uri)} from a backup and resume again, or start a new job.",
        ) from error
    if recovered is None:
        raise UserError(
            f"job {former.job} has no event log, and no snapshot in {display(former.storage)}", hint=NOTHING_TO_RESUME
        )
    return recovered


async def resume_event(
    registers: KeyValue,
    store: ObjectStore,
    spec: JobSpec,
    recovered: RecoveredJob | None,
    resumed: JobResumed,
    now_s: float,
) -> JobResumed:
    """Make sure that the registers of the ps name existing snapshots, and complete the event.

    Args:
        recovered: what the snapshots say about the job, if the log does not know it.
    """
    placement = await settle_placement(registers, store, spec, recovered, resumed.lost, now_s)
    if placement is None:
        await restore_registers(registers, store, spec, recovered)
        return resumed
    ps = resumed.ps or (0 if spec.has_ring else len(placement.holders))
    return replace(resumed, ps=ps, placement=placement.version, owners=placement.owners)


def lost_part(left: LogRecord | None, seen: LogEnd) -> LostLog | None:
    """The part of a log that is gone; None: nothing. ``left``: the last record of the log; None: the log is empty."""
    if left and left.seq >= seen.seq:
        return None
    return LostLog(
        after_s=left.envelope.time_s if left else 0.0,
        until_s=seen.time_s,
        records=max(0, seen.seq - (left.seq if left else 0)),
    )


def _check_epochs(job: JobId, spec: JobSpec, planned: int, epochs: int) -> None:
    """Refuse a number of epochs with which a job with ``planned`` epochs can't continue."""
    plan = spec.plan
    if epochs <= planned:
        raise UserError(
            f"job {job} has {count(planned, 'epoch')}, so --num_epochs={epochs} adds none",
            hint=f"--num_epochs is the total number of epochs: give at least {planned + 1}.",
            usage=True,
        )
    if plan.max_step and plan.max_step < plan.batches_per_epoch * epochs:
        raise UserError(
            f"job {job} ends at --max_step={plan.max_step}, so its number of epochs can't be changed",
            hint="Start a new job with: elasticdl train",
        )
