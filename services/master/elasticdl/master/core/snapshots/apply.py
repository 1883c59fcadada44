"""How snapshots and damaged snapshots change the state; moves, closing and stopping each wait for some of them."""

from __future__ import annotations

from elasticdl.master.core.closing.apply import on_final_snapshot, on_final_snapshot_damaged
from elasticdl.master.core.moves.apply import abort_move, apply_move_order, on_donor_snapshot
from elasticdl.master.core.snapshots.state import RegisteredSnapshot
from elasticdl.master.core.state import State
from elasticdl.master.core.timers import RETRY_S, SNAPSHOT_PAUSE
from elasticdl.shared.messages.commands import JobState, TakeSnapshot
from elasticdl.shared.messages.events import Envelope, SnapshotDamaged, SnapshotTaken
from elasticdl.shared.messages.measurements import TableCounted


def on_snapshot_taken(state: State, envelope: Envelope, event: SnapshotTaken) -> None:
    """Apply a snapshot, or a copy for a move, that a ps has written."""
    pod = state.pods.get(envelope.name)
    if pod is None:
        return
    if pod.incarnation != envelope.incarnation:
        # A former instance that still runs took the order; the present one may not have received it.
        asked = event.request and event.request in (state.closing.request, state.stopping.request)
        if asked and envelope.name not in state.closing.manifests:
            order = TakeSnapshot(ps=envelope.name, request=event.request, reason="")
            apply_failed_take_snapshot(state, order, envelope.time_s)
        return
    pod.faults = 0
    on_donor_snapshot(state, envelope.name, event)
    if event.move:
        return
    state.snapshots[envelope.name] = RegisteredSnapshot(
        manifest=event.manifest,
        size_bytes=event.size_bytes,
        seconds=event.seconds,
        time_s=envelope.time_s,
        step=min((group.ledger.step for group in event.ledgers), default=0),
    )
    on_final_snapshot(state, envelope.name, event)


def on_snapshot_damaged(state: State, _envelope: Envelope, event: SnapshotDamaged) -> None:
    """Apply that an object of a snapshot is missing or damaged."""
    state.damaged[event.object] = event
    on_final_snapshot_damaged(state, event)


def on_table_counted(state: State, envelope: Envelope, event: TableCounted) -> None:
    """Apply what a ps has counted in a table; the last count of a ps counts."""
    state.tables.setdefault(event.table, {})[envelope.name] = event


def apply_take_snapshot(state: State, command: TakeSnapshot, now_s: float) -> None:
    """Apply the order to take a snapshot: a copy for a move, the last one before a stop, or the final one."""
    state.requests = max(state.requests, command.request)
    if command.move:
        apply_move_order(state, command, now_s)
    elif state.job_state is JobState.STOPPING:
        state.stopping.request = command.request
        state.stopping.asked.add(command.ps)
    else:
        state.closing.request = command.request
        state.closing.asked.add(command.ps)


def apply_failed_take_snapshot(state: State, command: TakeSnapshot, time_s: float) -> None:
    """Apply that a ps could not be asked: its move is aborted, or the snapshot is ordered again."""
    if command.move:
        abort_move(state, command.move)
        return
    state.closing.asked.discard(command.ps)
    state.stopping.asked.discard(command.ps)
    state.timers[SNAPSHOT_PAUSE] = time_s + RETRY_S
