"""Moving groups between ps: one at a time, until every wanted ps has its share and no other has any.

| phase | next | with |
|---|---|---|
| BEGUN | COPYING | TakeSnapshot ordered; CATCHING_UP if the donor is not there |
| COPYING | COPIED | SnapshotTaken of the donor |
| COPIED | LOADING | HoldGroup ordered |
| LOADING | LOADED | GroupHeld of the recipient; BEGUN again while the copies are large |
| LOADED | FREEZING | TakeSnapshot ordered, the donor absorbs nothing after it |
| FREEZING | FROZEN | SnapshotTaken of the donor |
| FROZEN | CATCHING_UP | HoldGroup ordered |
| CATCHING_UP | HELD | GroupHeld of the recipient |
| HELD | over | PublishPlacement: a version with the new owners |
| any | GIVEN_UP | somebody died, refused or took too long |
| GIVEN_UP | over | PublishPlacement: a version with the old owners |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import Move, MovePhase, State
from elasticdl.master.core.timers import FREEZE, MOVE_PAUSE
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import BeginMove, HoldGroup, JobState, PublishPlacement, TakeSnapshot
from elasticdl.shared.messages.events import Envelope, GroupHeld, GroupLedger, PsStarted, SnapshotTaken
from elasticdl.shared.model.placement import PARTITIONS, Placement, ranges_of
from elasticdl.shared.names import PodName, Service, pod_name, pod_number

FREEZE_S_MAX = 60.0
"""Seconds that a donor may absorb nothing; a move that has not ended by then is given up."""
MOVE_PAUSE_S = 1.0
"""Seconds between a move that was given up and the next one."""
COPY_BYTES_SMALL = 4 << 20
"""A copy of so many bytes is written and loaded in a moment."""
COPIES_MAX = 12
"""Copies before the donor freezes, however much each of them brings."""
COPY_SHRINKS = 0.9
"""A copy that is not smaller than this part of the one before shows that copying is as slow as training is fast."""

MoveCommand = BeginMove | TakeSnapshot | HoldGroup | PublishPlacement

_ORDERED: Mapping[MovePhase, MovePhase] = MappingProxyType(
    {
        MovePhase.BEGUN: MovePhase.COPYING,
        MovePhase.COPIED: MovePhase.LOADING,
        MovePhase.LOADED: MovePhase.FREEZING,
        MovePhase.FROZEN: MovePhase.CATCHING_UP,
    }
)
_MOVING_STATES = (JobState.STARTING, JobState.TRAINING)
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


def wanted_ps(state: State) -> list[PodName]:
    """The ps that ought to run: those that were asked for, and those that have to hand something over."""
    asked = [pod_name(Service.PS, number) for number in range(state.ps)]
    return asked + [ps for ps in state.holders if ps not in asked and not is_stored(state, ps)]


def is_stored(state: State, ps: PodName) -> bool:
    """Whether a ps that is not asked for is not there: what it has is read from its last snapshot.

    A job that is closing moves nothing any more, so there it is started again; so it is where that snapshot is damaged.
    """
    if state.job_state not in _MOVING_STATES or ps in state.unreadable:
        return False
    pod = state.pods.get(ps)
    is_asked = pod_number(ps) < state.ps
    return not is_asked and ps in state.snapshots and (pod is None or pod.phase is PodPhase.EXITED)


def decide_moving(state: State) -> Decisions:
    """The next step of the move that is under way, or the beginning of one that is needed."""
    move, placement = state.move, state.placement
    decisions: Decisions = []
    if not state.is_published:
        publish = PublishPlacement(version=placement.version, owners=placement.owners)
        decisions.append((publish, f"version {placement.version} of the placement"))
    if move is None:
        return decisions + ([] if MOVE_PAUSE in state.timers or state.evaluation else _begin(state))
    what = f"move {move.number} from {move.donor} to {move.recipient}"
    match move.phase:
        case MovePhase.BEGUN if not move.stored:
            decisions.append((_snapshot(state, move, freeze=False), f"{what}: copy"))
        case MovePhase.LOADED:
            decisions.append((_snapshot(state, move, freeze=True), f"{what}: freeze"))
        case MovePhase.BEGUN | MovePhase.COPIED | MovePhase.FROZEN:
            order = HoldGroup(
                ps=move.recipient,
                move=move.number,
                partitions=move.partitions,
                manifest=move.manifest,
                donor=move.donor,
                version=placement.version,
            )
            decisions.append((order, f"{what}: load"))
        case MovePhase.HELD:
            to = pod_number(move.recipient)
            after = placement.moved(move.partitions, to=to, version=move.number)
            decisions.append((PublishPlacement(version=after.version, owners=after.owners), f"{what}: done"))
        case MovePhase.GIVEN_UP:
            publish = PublishPlacement(version=move.number, owners=placement.owners)
            decisions.append((publish, f"{what}: given up"))
        case _:
            pass
    return decisions


def is_enough(copies: int, size_bytes: int, before_bytes: int) -> bool:
    """Whether there have been enough copies: another one would hardly leave less for when pushes wait.

    Args:
        copies: how many.
        size_bytes: of the last one.
        before_bytes: of the one before.
    """
    shrinks = copies == 1 or size_bytes < COPY_SHRINKS * before_bytes
    return size_bytes <= COPY_BYTES_SMALL or copies >= COPIES_MAX or not shrinks


def wants_move(state: State) -> bool:
    """Whether a move is under way or could begin, so that evaluations have to wait."""
    return state.move is not None or bool(_begin(state))


# --- folding ------------------------------------------------------------------------------------------------------


def note_move_command(state: State, command: MoveCommand, now_s: float) -> None:
    """Fold what was decided about a move."""
    match command:
        case BeginMove():
            _note_begin(state, command)
        case PublishPlacement():
            _note_placement(state, command, now_s)
        case _:
            _note_order(state, command, now_s)


def _note_begin(state: State, command: BeginMove) -> None:
    state.move = Move(
        number=command.move,
        donor=command.donor,
        recipient=command.recipient,
        partitions=command.partitions,
        stored=command.stored,
    )


def _note_order(state: State, command: TakeSnapshot | HoldGroup, now_s: float) -> None:
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


def note_donor_snapshot(state: State, ps: PodName, event: SnapshotTaken) -> None:
    """Fold a snapshot that a move waits for."""
    move = state.move
    if move is None or move.donor != ps or not event.request or event.request != move.request:
        return
    if move.phase in (MovePhase.COPYING, MovePhase.FREEZING):
        move.phase = MovePhase.COPIED if move.phase is MovePhase.COPYING else MovePhase.FROZEN
        move.manifest, move.size_bytes, move.before_bytes = event.manifest, event.size_bytes, move.size_bytes
        move.copies += 1


def note_held(state: State, envelope: Envelope, event: GroupHeld) -> None:
    """Fold what a recipient says."""
    move, pod = state.move, state.pods.get(envelope.name)
    if move is None or (move.recipient, move.number) != (envelope.name, event.move):
        return
    if pod is None or pod.incarnation != envelope.incarnation:
        return
    if event.failure:
        give_up_move(state, move.number)
        if move.stored:
            state.unreadable.add(move.donor)
    elif move.phase is MovePhase.LOADING and event.manifest == move.manifest:
        # What changed while this was copied is copied once more, so that little is left for when pushes wait.
        enough = is_enough(move.copies, move.size_bytes, move.before_bytes)
        move.phase = MovePhase.LOADED if enough else MovePhase.BEGUN
    elif move.phase is MovePhase.CATCHING_UP and (move.stored or event.manifest == move.manifest):
        move.phase = MovePhase.HELD
        move.ledgers = event.ledgers


def _note_placement(state: State, command: PublishPlacement, now_s: float) -> None:
    """A version of the placement: it is what counts from now on."""
    state.is_published = True
    if command.version <= state.placement.version:
        return
    move, state.move = state.move, None
    before, state.placement = state.placement, Placement(version=command.version, owners=command.owners)
    state.timers.pop(FREEZE, None)
    if move is None or state.placement.owners == before.owners:
        state.timers[MOVE_PAUSE] = now_s + MOVE_PAUSE_S
        return
    pod = state.pods[move.recipient]
    pod.with_model = pod.incarnation
    if state.training:
        is_last = move.donor not in state.holders
        held = finished_in_all(move.ledgers)
        state.training.note_move(move.donor, move.recipient, pod.incarnation, held, is_last=is_last)


def disturb_move(state: State, ps: PodName) -> None:
    """A ps died, or was replaced."""
    move = state.move
    if move is None or move.phase is MovePhase.HELD:
        return
    donor_lost = ps == move.donor and not move.stored and move.phase in _NEEDS_DONOR
    if donor_lost or ps == move.recipient:
        give_up_move(state, move.number)


def give_up_frozen(state: State, timer: str) -> None:
    """A timer fired; perhaps the one that says that a donor has waited for too long."""
    if timer == FREEZE and state.move and state.move.phase in _FROZEN_PHASES:
        give_up_move(state, state.move.number)


def give_up_move(state: State, number: int) -> None:
    """This move is not going to end as it should; nothing happens when it has."""
    if state.move and state.move.number == number:
        state.move.phase = MovePhase.GIVEN_UP


def finished_in_all(ledgers: Iterable[GroupLedger]) -> RangeSet:
    """Tasks that all of some groups have finished."""
    finished: RangeSet | None = None
    for group in ledgers:
        held = RangeSet(group.ledger.finished)
        finished = held if finished is None else finished.intersection(held)
    return finished if finished is not None else RangeSet()


def note_ledgers_of(state: State, envelope: Envelope, event: PsStarted) -> None:
    """Fold what a ps has at its start: held groups, and what is somebody else's by now, are among it.

    A ps may lack what a version gives it that it has not heard of, if the snapshot with it was damaged. It ends when it
    hears of the version, and its next life gathers what is missing; until then nothing counts as finished.
    """
    state.unreadable.discard(envelope.name)
    owned = state.owned(envelope.name)
    if not owned or state.training is None:
        return
    counting = [group for group in event.ledgers if RangeSet(group.partitions).intersection(RangeSet(owned))]
    covered = RangeSet(bounds for group in counting for bounds in group.partitions)
    is_whole = not any(True for start, end in owned for _ in covered.gaps(start, end))
    finished = finished_in_all(counting) if is_whole else RangeSet()
    state.training.note_ps(envelope.name, envelope.incarnation, finished)


# --- what to move -------------------------------------------------------------------------------------------------


def _snapshot(state: State, move: Move, *, freeze: bool) -> TakeSnapshot:
    return TakeSnapshot(
        ps=move.donor,
        request=state.requests + 1,
        reason=f"move {move.number}",
        move=move.number,
        freeze=freeze,
        version=state.placement.version,
        recipient=move.recipient,
        partitions=move.partitions,
    )


def _begin(state: State) -> Decisions:
    running = {pod.name for pod in state.running(Service.PS)}
    counts = _counts(state)
    recipients = [number for number in range(state.ps) if pod_name(Service.PS, number) in running]
    if state.job_state not in _MOVING_STATES or not recipients:
        return []
    recipient = min(recipients, key=lambda number: counts[number])
    for donor in _donors(state, counts):
        name = pod_name(Service.PS, donor)
        stored = is_stored(state, name)
        if not stored and not _can_give(state, name):
            continue
        amount = _amount(state, counts, donor, recipient)
        if amount <= 0 or donor == recipient:
            continue
        theirs = [partition for partition, owner in enumerate(state.placement.owners) if owner == donor]
        command = BeginMove(
            move=state.placement.version + 1,
            donor=name,
            recipient=pod_name(Service.PS, recipient),
            partitions=ranges_of(theirs[-amount:]),
            stored=stored,
        )
        return [(command, f"{state.ps} ps are wanted: {amount} partitions from {name} to {command.recipient}")]
    return []


def _counts(state: State) -> dict[int, int]:
    owners = state.placement.owners
    return {number: owners.count(number) for number in {*range(state.ps), *owners}}


def _donors(state: State, counts: Mapping[int, int]) -> list[int]:
    """Those that are not asked for first, then those that have most."""
    return sorted((number for number in counts if counts[number]), key=lambda n: (n < state.ps, -counts[n], n))


def _can_give(state: State, ps: PodName) -> bool:
    """Whether a ps that is there can hand something over: in the middle of training, for no other reason."""
    pod, training = state.pods.get(ps), state.training
    is_ready = pod is not None and pod.phase is PodPhase.RUNNING and pod.has_model
    return is_ready and state.job_state is JobState.TRAINING and training is not None and not training.is_complete


def _amount(state: State, counts: Mapping[int, int], donor: int, recipient: int) -> int:
    """How many partitions should go from one ps to the other."""
    least, most = PARTITIONS // state.ps, -(-PARTITIONS // state.ps)
    if donor >= state.ps:
        return min(counts[donor], most - counts[recipient])
    if counts[donor] - counts[recipient] <= 1:
        return 0
    return max(1, min(counts[donor] - least, least - counts[recipient]))
