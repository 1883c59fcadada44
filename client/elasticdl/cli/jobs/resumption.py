"""What is left of a job that ended: its snapshots where the log is lost, and what a resume appends to the log."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from elasticdl.cli.jobs.run_directory import LogEnd, RunDirectory
from elasticdl.ps.snapshots.job_recovery import RecoveredJob, recover_job, restore_registers, settle_placement
from elasticdl.shared.bus.ports import KeyValue
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import JobResumed, LogRecord, LostLog
from elasticdl.shared.storage import ObjectStore, display

NOTHING_TO_RESUME = (
    "There is nothing to resume: the job trained nothing, or its event log and its snapshots are lost. "
    "Start a new job with: elasticdl train"
)


async def recover_without_log(run: RunDirectory, store: ObjectStore, storage: str) -> RecoveredJob:
    """A job whose log is lost, from its snapshots.

    Args:
        run: the job's folder.
        store: holds the snapshots.
        storage: the job's storage, a URI.

    Raises:
        UserError: there are none.
        TransientError, PermanentError: the store.
    """
    recovered = await asyncio.to_thread(recover_job, store, storage, run.job)
    if recovered is None:
        raise UserError(
            f"job {run.job} has no event log, and no snapshot in {display(storage)}", hint=NOTHING_TO_RESUME
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
        registers: of the ps.
        store: holds the snapshots.
        spec: the job.
        recovered: what the snapshots say about the job, if the log does not know it.
        resumed: the event, without a placement.
        now_s: seconds since the epoch.
    """
    placement = await settle_placement(registers, store, spec, recovered, resumed.lost, now_s)
    if placement is None:
        await restore_registers(registers, store, spec, recovered)
        return resumed
    ps = resumed.ps or len(placement.holders)
    return replace(resumed, ps=ps, placement=placement.version, owners=placement.owners)


def lost_part(left: LogRecord | None, seen: LogEnd) -> LostLog | None:
    """The part of a log that is gone; None: nothing.

    Args:
        left: the last record of the log; None: the log is empty.
        seen: the end of the log as the launcher last saw it.
    """
    if left and left.seq >= seen.seq:
        return None
    return LostLog(
        after_s=left.envelope.time_s if left else 0.0,
        until_s=seen.time_s,
        records=max(0, seen.seq - (left.seq if left else 0)),
    )
