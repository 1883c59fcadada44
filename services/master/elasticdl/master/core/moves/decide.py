"""The steps of a move, one move at a time, and which ps have to run for it.

| phase | next | with |
|---|---|---|
| BEGUN | COPYING | TakeSnapshot ordered; CATCHING_UP if the donor is not running |
| COPYING | COPIED | SnapshotTaken of the donor |
| COPIED | LOADING | HoldGroup ordered |
| LOADING | LOADED | GroupHeld of the recipient; BEGUN again while the copies are large |
| LOADED | FREEZING | TakeSnapshot ordered, the donor absorbs nothing after it |
| FREEZING | FROZEN | SnapshotTaken of the donor |
| FROZEN | CATCHING_UP | HoldGroup ordered |
| CATCHING_UP | HELD | GroupHeld of the recipient |
| HELD | over | PublishPlacement: a version with the new owners |
| any | ABORTED | a participant died or refused, or the freeze took too long |
| ABORTED | over | PublishPlacement: a version with the old owners |
"""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.moves.rebalancing import decide_begin, is_stored
from elasticdl.master.core.moves.state import Move, MovePhase
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import MOVE_PAUSE
from elasticdl.shared.messages.commands import HoldGroup, PublishPlacement, TakeSnapshot
from elasticdl.shared.names import PodName, Service, pod_name, pod_names, pod_number


def wanted_ps(state: State) -> list[PodName]:
    """The ps that should run: those that the user wants, and those whose partitions have to be moved away."""
    if state.job.has_ring:
        return list(state.placement.holder_names) if state.job.has_tables_beside_ring else []
    surplus = [pod_name(Service.PS, number) for number in state.placement.holders if number >= state.ps]
    return [*pod_names(Service.PS, state.ps), *(ps for ps in surplus if not is_stored(state, ps))]


def decide_moving(state: State) -> Decisions:
    """The next step of the present move, or the beginning of a move that is needed."""
    move, placement = state.move, state.placement
    decisions: Decisions = []
    if state.foreign_placement > placement.version:
        version = state.foreign_placement + 1
        publish = PublishPlacement(version=version, owners=placement.owners)
        return [(publish, f"version {state.foreign_placement} of the placement is not of this job's masters")]
    if not state.is_placement_published:
        publish = PublishPlacement(version=placement.version, owners=placement.owners)
        decisions.append((publish, f"version {placement.version} of the placement"))
    if move is None:
        return decisions + ([] if MOVE_PAUSE in state.timers or state.evaluation else decide_begin(state))
    title = f"move {move.number} from {move.donor} to {move.recipient}"
    match move.phase:
        case MovePhase.BEGUN if not move.stored:
            decisions.append((_snapshot(state, move, freeze=False), f"{title}: copy"))
        case MovePhase.LOADED:
            decisions.append((_snapshot(state, move, freeze=True), f"{title}: freeze"))
        case MovePhase.BEGUN | MovePhase.COPIED | MovePhase.FROZEN:
            order = HoldGroup(
                ps=move.recipient,
                move=move.number,
                partitions=move.partitions,
                manifest=move.manifest,
                donor=move.donor,
                version=placement.version,
            )
            decisions.append((order, f"{title}: load"))
        case MovePhase.HELD:
            to = pod_number(move.recipient)
            after = placement.moved(move.partitions, to=to, version=move.number)
            decisions.append((PublishPlacement(version=after.version, owners=after.owners), f"{title}: done"))
        case MovePhase.ABORTED:
            publish = PublishPlacement(version=move.number, owners=placement.owners)
            decisions.append((publish, f"{title}: aborted"))
        case _:
            pass
    return decisions


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
