"""Recovers the present state: from the core snapshot, if it is usable, and the log after it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from elasticdl.master.core import Fold, State
from elasticdl.master.snapshots import core_snapshot
from elasticdl.shared.bus.ports import Bus, EventLog
from elasticdl.shared.bus.reading import present_records, record_at
from elasticdl.shared.errors import ProtocolError, UnreadableError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import JobSubmitted, LogRecord
from elasticdl.shared.names import MASTER

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A recovered job.

    Attributes:
        read_seq: sequence number of the last record that was read; 0: the log is empty.
        snapshot_seq: last record in the core snapshot; 0: the log was folded from its beginning.
        entry_seq: number of the core snapshot's register entry, used or not; 0 if absent.
    """

    state: State
    read_seq: int
    snapshot_seq: int
    entry_seq: int


async def recover(bus: Bus, until: int = 0) -> Recovered:
    """Fold a job's log as it is now.

    Args:
        until: sequence number of the last record to fold; 0: all.

    Raises:
        TransientError: NATS was unreachable for too long.
        PermanentError: a part of the log is lost.
    """
    entry = await bus.core_snapshots.read(MASTER)
    folding = Fold()
    before = read_seq = 0
    if entry is not None:
        state = await _usable(bus.log, entry.value, until)
        if state is not None:
            folding = Fold(state)
            before = read_seq = state.seq
    async for record in present_records(bus.log, after=before, until=until):
        folding.take(record)
        read_seq = record.seq
    return Recovered(
        state=folding.finish(), read_seq=read_seq, snapshot_seq=before, entry_seq=entry.seq if entry else 0
    )


def check_complete(state: State) -> None:
    """Refuse to continue a job whose state does not follow from the records that can be read.

    Raises:
        UnreadableError: a decision, or the record that says what the job is, can't be read.
    """
    unreadable = state.unreadable_messages
    if unreadable.lost_seq or (unreadable.count and state.spec is None):
        seq = unreadable.lost_seq or unreadable.first[0].message.seq
        reason = next((each.message.reason for each in unreadable.first if each.message.seq == seq), "it is damaged")
        raise UnreadableError(f"record {seq} of the event log, which the state of the job follows from,", reason)


async def recover_with_evaluations(bus: Bus, until: int = 0) -> Recovered:
    """``recover`` for those that show a job: the state has all evaluations, and keeps them while it is folded further.

    If the core snapshot has forgotten some, the log is folded from its beginning.
    """
    recovered = await recover(bus, until)
    recovered.state.forgets_evaluations = False
    if not recovered.state.forgotten_evaluations:
        return recovered
    folding, read_seq = Fold(State(forgets_evaluations=False)), 0
    async for record in present_records(bus.log, until=until):
        folding.take(record)
        read_seq = record.seq
    return replace(recovered, state=folding.finish(), read_seq=read_seq, snapshot_seq=0)


async def _usable(log: EventLog, data: bytes, until: int) -> State | None:
    """A snapshot's state, if this version can read it and it belongs to this log."""
    seq = core_snapshot.seq_of(data)
    if not seq or (until and seq > until):
        return None
    try:
        submitted = await _submitted(log, seq)
        if submitted is None:
            _log.warning("the log has no job before the core snapshot, folding the whole log", seq=seq)
            return None
        state = core_snapshot.decode(data, submitted)
        anchor = await record_at(log, seq)
        decision = await record_at(log, state.master_seq) if state.master_seq > seq else anchor
    except ProtocolError as error:
        _log.warning("core snapshot not usable, folding the whole log", reason=str(error))
        return None
    if until and state.master_seq > until:
        return None
    if anchor is None or anchor.envelope.id != state.last_id or not _has_applied(state, decision):
        _log.warning("core snapshot belongs to another log, folding the whole log", seq=seq)
        return None
    return state


async def _submitted(log: EventLog, until: int) -> JobSpec | None:
    """The job as it was submitted, usually in the first record."""
    async for record in present_records(log, until=until):
        if isinstance(record.envelope.event, JobSubmitted):
            return record.envelope.event.spec
    return None


def _has_applied(state: State, record: LogRecord | None) -> bool:
    """Whether a snapshot's last decision is the one on the log: a log that lost its end may have lost just that."""
    return record is not None and record.envelope.number <= state.seen.get(record.envelope.incarnation, 0)
