"""How orders, answers and failures change the state of a move and the placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from elasticdl.master.core.moves.state import Move, MovePhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import FREEZE, MOVE_PAUSE
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import BeginMove, HoldGroup, PublishPlacement, TakeSnapshot
from elasticdl.shared.messages.events import Envelope, GroupHeld, GroupLedger, PsStarted, SnapshotTaken
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import NOBODY, PodName

FREEZE_S_MAX = 60.0
"""Seconds that a donor may absorb nothing; a move that takes longer is aborted."""
MOVE_PAUSE_S = 1.0
"""Seconds between an aborted move and the next one."""
COPY_BYTES_SMALL = 4 << 20
"""A copy up to this size is written and loaded in a moment."""
COPIES_MAX = 12
"""Copies before the donor freezes, however large each of them is."""
COPY_SHRINKS = 0.9
"""A copy that is larger than this part of the one before shows that copying is as slow as training is fast."""

_ORDERED: Mapping[MovePhase, MovePhase] = MappingProxyType(
    {
        MovePhase.BEGUN: MovePhase.COPYING,
        MovePhase.COPIED: MovePhase.LOADING,
        MovePhase.LOADED: MovePhase.FREEZING,
        MovePhase.FROZEN: MovePhase.CATCHING_UP,
    }
)
_FROZEN_PHASES = (MovePhase.FREEZING, MovePhase.FROZEN, MovePhase.CATCHING_UP)
_NEEDS_DONOR = (
    MovePhase.BEGUN,
    MovePhase.COPYING,
    MovePhase.COPIED,
    MovePhase.LOADING,
    MovePhase.LOADED,
    MovePhase.FREEZING,
    MovePhase.FROZEN,
)


# --- decided by the master --------------------------------------------------------------------------------------


def apply_move_command(state: State, command: BeginMove | HoldGroup | PublishPlacement, now_s: float) -> None:
    """Apply one step of a move, or a version of the placement."""
    match command:
        case BeginMove():
            _begin_move(state, command)
        case HoldGroup():
            apply_move_order(state, command, now_s)
        case PublishPlacement():
            _publish_placement(state, command, now_s)


def _begin_move(state: State, command: BeginMove) -> None:
    state.move = Move(
        number=command.move,
        donor=command.donor,
        recipient=command.recipient,
        partitions=command.partitions,
        stored=command.stored,
    )


def apply_move_order(state: State, command: TakeSnapshot | HoldGroup, now_s: float) -> None:
    """Apply an order to the donor or the recipient."""
    move = state.move
    if move is None or command.move != move.number:
        return
    if isinstance(command, TakeSnapshot):
        move.request = command.request
        if command.freeze:
            state.timers[FREEZE] = now_s + FREEZE_S_MAX
    if move.stored:
        move.phase = MovePhase.CATCHING_UP
    else:
        move.phase = _ORDERED.get(move.phase, move.phase)


def _publish_placement(state: State, command: PublishPlacement, now_s: float) -> None:
    """The decided version of the placement is valid from now on."""
    state.is_placement_published = True
    if command.version <= state.placement.version:
        return
    move, state.move = state.move, None
    before, state.placement = state.placement, Placement(version=command.version, owners=command.owners)
    state.timers.pop(FREEZE, None)
    if move is None or state.placement.owners == before.owners:
        state.timers[MOVE_PAUSE] = now_s + MOVE_PAUSE_S
        return
    pod = state.pods[move.recipient]
    pod.model_incarnation = pod.incarnation
    if state.training:
        is_last = move.donor not in state.holders
        held = finished_in_all(move.ledgers)
        # A recipient that has exited meanwhile is credited again when it reports its ledgers.
        incarnation = pod.incarnation if pod.has_process else NOBODY
        state.training.on_partitions_moved(move.donor, move.recipient, incarnation, held, is_last=is_last)


# --- reported by parameter servers ------------------------------------------------------------------------------


def on_donor_snapshot(state: State, ps: PodName, event: SnapshotTaken) -> None:
    """Apply a copy that the donor has written."""
    move = state.move
    if move is None or move.donor != ps or not event.request or event.request != move.request:
        return
    if move.phase in (MovePhase.COPYING, MovePhase.FREEZING):
        move.phase = MovePhase.COPIED if move.phase is MovePhase.COPYING else MovePhase.FROZEN
        move.manifest, move.size_bytes, move.before_bytes = event.manifest, event.size_bytes, move.size_bytes
        move.copies += 1


def on_group_held(state: State, envelope: Envelope, event: GroupHeld) -> None:
    """Apply the recipient's answer: it holds the partitions, or can't read them."""
    move, pod = state.move, state.pods.get(envelope.name)
    if move is None or (move.recipient, move.number) != (envelope.name, event.move):
        return
    if pod is None or pod.incarnation != envelope.incarnation:
        return
    if event.failure:
        abort_move(state, move.number)
        if move.stored:
            state.unreadable.add(move.donor)
    elif move.phase is MovePhase.LOADING and event.manifest == move.manifest:
        # The donor copies what has changed meanwhile, so that little is left for the time in which pushes wait.
        enough = is_enough(move.copies, move.size_bytes, move.before_bytes)
        move.phase = MovePhase.LOADED if enough else MovePhase.BEGUN
    elif move.phase is MovePhase.CATCHING_UP and (move.stored or event.manifest == move.manifest):
        move.phase = MovePhase.HELD
        move.ledgers = event.ledgers


def is_enough(copies: int, size_bytes: int, before_bytes: int) -> bool:
    """Whether to freeze the donor now: another copy would hardly shorten the time in which pushes wait."""
    shrinks = copies == 1 or size_bytes < COPY_SHRINKS * before_bytes
    return size_bytes <= COPY_BYTES_SMALL or copies >= COPIES_MAX or not shrinks


def apply_ps_ledgers(state: State, envelope: Envelope, event: PsStarted) -> None:
    """Credit a ps that has started with what it restored of the partitions that it owns.

    It may report groups that it holds for a move, or that another ps owns by now; they don't count. It may also lack
    partitions of a version of the placement that it does not know yet, if the snapshot with them was damaged. Then it
    ends when it learns of the version, and its next instance collects what is missing. Until then nothing counts as
    finished.
    """
    state.unreadable.discard(envelope.name)
    owned = state.owned(envelope.name)
    if state.training is None:
        return
    reached = max((_reached(group) for group in event.ledgers), default=0)
    state.training.reached = max(state.training.reached, reached)
    if not owned:
        return
    counting = [group for group in event.ledgers if RangeSet(group.partitions).intersection(RangeSet(owned))]
    covered = RangeSet(bounds for group in counting for bounds in group.partitions)
    is_whole = not any(True for start, end in owned for _ in covered.gaps(start, end))
    finished = finished_in_all(counting) if is_whole else RangeSet()
    state.training.on_ps_started(envelope.name, envelope.incarnation, finished)


def _reached(group: GroupLedger) -> int:
    """One more than the last task of which a group has absorbed a batch."""
    ledger = group.ledger
    return max([0, *(end for _, end in ledger.finished), *(task + 1 for task in ledger.open)])


def finished_in_all(ledgers: Iterable[GroupLedger]) -> RangeSet:
    """Tasks that all of some groups have finished."""
    finished: RangeSet | None = None
    for group in ledgers:
        held = RangeSet(group.ledger.finished)
        finished = held if finished is None else finished.intersection(held)
    return finished if finished is not None else RangeSet()


# --- failures ---------------------------------------------------------------------------------------------------


def interrupt_move(state: State, ps: PodName) -> None:
    """Abort the move if a ps that it needs has ended or was replaced."""
    move = state.move
    if move is None or move.phase is MovePhase.HELD:
        return
    donor_lost = ps == move.donor and not move.stored and move.phase in _NEEDS_DONOR
    if donor_lost or ps == move.recipient:
        abort_move(state, move.number)


def on_freeze_timeout(state: State) -> None:
    """Abort a move whose donor has been frozen for too long."""
    if state.move and state.move.phase in _FROZEN_PHASES:
        abort_move(state, state.move.number)


def abort_move(state: State, number: int) -> None:
    """Abort this move; without effect when it has ended."""
    if state.move and state.move.number == number:
        state.move.phase = MovePhase.ABORTED
