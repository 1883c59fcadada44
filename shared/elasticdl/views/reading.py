"""Reading a job: ``exact`` folds its log as its masters did, ``following`` applies further records as they come.

Only this package and the master fold a log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from elasticdl.master.core.decide import decide
from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.fold import Fold, fold
from elasticdl.master.core.state import State
from elasticdl.shared.bus.ports import JobReader, KeyValueEntry, LogReader
from elasticdl.shared.bus.reading import present_records, record_at, submitted
from elasticdl.shared.errors import ProtocolError, UnreadableError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import MASTER
from elasticdl.shared.process.clock import Clock, JobClock, SystemClock
from elasticdl.shared.process.logs import get_logger
from elasticdl.views import core_snapshot

__all__ = [
    "Reading",
    "Verification",
    "check_complete",
    "clock_of",
    "exact",
    "fold",
    "following",
    "is_complete",
    "snapshot_states",
    "verify",
]

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A job, as far as its log was read; by default nothing of it.

    Attributes:
        read_seq: sequence number of the last record that was read; 0: the log is empty.
        snapshot_seq: last record in the core snapshot; 0: the log was folded from its beginning.
        entry_seq: number of the core snapshot's register entry, used or not; 0 if absent.
    """

    state: State = field(default_factory=State)
    read_seq: int = 0
    snapshot_seq: int = 0
    entry_seq: int = 0


async def exact(bus: JobReader, until: int = 0, *, all_evaluations: bool = False) -> Reading:
    """A job's log as it is now, from the last usable core snapshot on.

    Args:
        until: sequence number of the last record to fold; 0: all.
        all_evaluations: the state has all evaluations, and keeps them while it is folded further. A core snapshot that
            has forgotten some is not usable for it.

    Raises:
        PermanentError: a part of the log is lost.
    """
    latest = await bus.core_snapshots.read(MASTER)
    state = State()
    if latest:  # Otherwise the log is short.
        async for found, _ in snapshot_states(bus, until, latest):
            if not (all_evaluations and found.forgotten_evaluations):
                state = found
                break
    state.forgets_evaluations = not all_evaluations
    folding, before = Fold(state), state.seq
    read_seq = before
    async for record in present_records(bus.log, after=before, until=until):
        folding.take(record)
        read_seq = record.seq
    return Reading(
        state=folding.finish(), read_seq=read_seq, snapshot_seq=before, entry_seq=latest.seq if latest else 0
    )


async def snapshot_states(
    bus: JobReader, until: int, latest: KeyValueEntry | None = None
) -> AsyncIterator[tuple[State, bytes]]:
    """The core snapshots that this version can read and that belong to the log, with their states, the last one first.

    Args:
        until: sequence number of the last record that they may have seen; 0: any.
        latest: the latest one, to be tried before those that are kept along the log.
    """
    if latest and (state := await _usable(bus.log, latest.value, until)):
        yield state, latest.value
    last = await bus.log.last_seq()
    last, spec = min(until, last) if until else last, None
    for name in core_snapshot.kept_names(last):
        entry = await bus.core_snapshots.read(name)
        if entry and core_snapshot.is_current(entry.value):  # All of an earlier version would be many warnings.
            spec = spec or await submitted(bus.log, last)
            if state := await _usable(bus.log, entry.value, until, spec):
                yield state, entry.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification.

    Attributes:
        last_seq: sequence number of its last record.
        decisions: number of decisions that were re-run.
        differences: one line for each decision that differs now.
    """

    state: State
    last_seq: int
    decisions: int
    differences: tuple[str, ...]


async def verify(records: AsyncIterator[LogRecord]) -> Verification:
    """Fold a log from its beginning, and re-run each decision of its masters."""
    decisions, differences, last_seq = 0, list[str](), 0

    def decide_again(state: State, record: LogRecord, decided: Decided) -> None:
        nonlocal decisions
        decisions += 1
        again = decide(state, decided.now_s)
        if again.commands != decided.commands:
            differences.append(f"#{record.seq}: recorded {_text(decided.commands)}, now {_text(again.commands)}")

    folding = Fold(before_decision=decide_again)
    async for record in records:
        folding.take(record)
        last_seq = record.seq
    return Verification(state=folding.finish(), last_seq=last_seq, decisions=decisions, differences=tuple(differences))


def _text(commands: tuple[object, ...]) -> str:
    return ", ".join(str(command) for command in commands) or "nothing"


async def following(log: LogReader, past: Reading) -> AsyncIterator[LogRecord]:
    """The further records of a log, each as soon as it is applied to the state of ``past``; never ends.

    Records are applied in the order of the log, so decisions a little later than the master took them.
    """
    async for record in log.read(past.read_seq):
        evolve(past.state, record)
        yield record


def is_complete(state: State) -> bool:
    """Whether the state follows from the records that can be read: none that it needs is unreadable."""
    unreadable = state.unreadable_messages
    return not (unreadable.lost_seq or (unreadable.count and state.spec is None))


def check_complete(state: State) -> None:
    """Refuse to continue a job whose state does not follow from the records that can be read.

    Raises:
        UnreadableError: a decision, or the record that says what the job is, can't be read.
    """
    if is_complete(state):
        return
    unreadable = state.unreadable_messages
    seq = unreadable.lost_seq or unreadable.first[0].message.seq
    reason = next((each.message.reason for each in unreadable.first if each.message.seq == seq), "it is damaged")
    raise UnreadableError(f"record {seq} of the event log, which the state of the job follows from,", reason)


def clock_of(state: State, own: Clock | None = None) -> JobClock:
    """A clock that shows the time of a running job.

    Args:
        state: the job. Once it is measured, its log gets a record every few seconds, so a clock that is far from the
            last record shows another time than the job's.
        own: the machine's clock; None: the system's.
    """
    own = own or SystemClock()
    clock = JobClock(own)
    if state.measured:
        now_s = own.now()
        clock.ahead_s = agreed_s(now_s, state.now_s) - now_s
    return clock


async def _usable(log: LogReader, data: bytes, until: int, spec: JobSpec | None = None) -> State | None:
    """A snapshot's state, if this version can read it and it belongs to this log; ``spec``: the submitted job."""
    seq = core_snapshot.seq_of(data)
    if until and seq > until:
        return None
    try:
        state = await _checked(log, data, spec or await submitted(log, seq))
    except ProtocolError as error:
        _log.warning("core snapshot not usable, folding the log from an earlier one", seq=seq, reason=str(error))
        return None
    return state if not until or state.master_seq <= until else None


async def _checked(log: LogReader, data: bytes, spec: JobSpec | None) -> State:
    """A snapshot's state.

    Raises:
        ProtocolError: this version can't read it, or it belongs to another log.
    """
    if spec is None:
        raise ProtocolError("the log has no job")
    state = core_snapshot.decode(data, spec)
    anchor = await record_at(log, state.seq)
    decision = await record_at(log, state.master_seq) if state.master_seq > state.seq else anchor
    last_id = (anchor.envelope.incarnation, anchor.envelope.number) if anchor is not None else None
    if last_id != state.last_id or not _has_applied(state, decision):
        raise ProtocolError("it belongs to another log")
    return state


def _has_applied(state: State, record: LogRecord | None) -> bool:
    """Whether a snapshot's last decision is the one on the log: a log that lost its end may have lost just that."""
    return record is not None and record.envelope.number <= state.seen.get(record.envelope.incarnation, 0)
