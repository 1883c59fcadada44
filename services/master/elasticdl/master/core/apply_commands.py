"""How the master's own decisions change the state: a command that is on the log will be run.

A command that could not be run takes its change back, so that the same is decided again.
"""

from __future__ import annotations

from typing import assert_never

from elasticdl.master.core.callbacks.apply import apply_set_learning_rate
from elasticdl.master.core.closing.apply import apply_failed_read_ledgers
from elasticdl.master.core.evaluation.apply import apply_failed_open_pin, apply_open_pin
from elasticdl.master.core.evaluation.metric_states import apply_failed_removal, apply_removal
from elasticdl.master.core.job.lifecycle import apply_enter_state
from elasticdl.master.core.moves.apply import abort_move, apply_move_command
from elasticdl.master.core.pods.apply import apply_failed_pod_command, apply_pod_command
from elasticdl.master.core.rings.apply import apply_form_ring
from elasticdl.master.core.snapshots.apply import apply_failed_take_snapshot, apply_take_snapshot
from elasticdl.master.core.state import State
from elasticdl.master.core.training.apply import apply_dispatch
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import CommandsRan, Decided, Envelope


def on_decided(state: State, _envelope: Envelope, event: Decided) -> None:
    """Apply the commands of a decision."""
    for command in event.commands:
        apply_command(state, command, event.now_s)


def on_commands_ran(state: State, envelope: Envelope, event: CommandsRan) -> None:
    """Apply the outcome of the decisions up to ``event.up_to``."""
    decided = next((decided for seq, decided in state.pending_commands if seq == event.up_to), None)
    if decided:
        for failure in event.failures:
            apply_failed_command(state, decided.commands[failure.position], envelope.time_s)
    state.pending_commands = [(seq, decided) for seq, decided in state.pending_commands if seq > event.up_to]


def apply_command(state: State, command: Command, now_s: float) -> None:
    """Apply one command of a decision."""
    match command:
        case commands.StartPod() | commands.StopPod() | commands.PromoteWorker():
            apply_pod_command(state, command, now_s)
        case commands.Dispatch():
            apply_dispatch(state, command)
        case commands.ReturnDelivery():
            state.deliveries_to_return = [reply for reply in state.deliveries_to_return if reply != command.reply]
        case commands.BeginMove() | commands.HoldGroup() | commands.PublishPlacement() | commands.FormRing():
            _apply_to_servers(state, command, now_s)
        case commands.TakeSnapshot():
            apply_take_snapshot(state, command, now_s)
        case commands.OpenPin():
            apply_open_pin(state, command, now_s)
        case commands.ClosePin():
            state.pins_to_close.discard((command.ps, command.evaluation))
        case commands.ReadLedgers():
            state.closing.reading.add(command.ps)
        case commands.SetTimer():
            state.timers[command.timer] = command.due_s
        case commands.EnterState():
            apply_enter_state(state, command, now_s)
        case commands.EndTraining() | commands.SetLearningRate() | commands.RemoveStates():
            _apply_to_training(state, command)
        case _:
            assert_never(command)


def _apply_to_servers(
    state: State,
    command: commands.BeginMove | commands.HoldGroup | commands.PublishPlacement | commands.FormRing,
    now_s: float,
) -> None:
    if isinstance(command, commands.FormRing):
        apply_form_ring(state, command)
    else:
        apply_move_command(state, command, now_s)


def _apply_to_training(
    state: State, command: commands.EndTraining | commands.SetLearningRate | commands.RemoveStates
) -> None:
    match command:
        case commands.EndTraining():
            state.replan(command.epochs)
        case commands.SetLearningRate():
            apply_set_learning_rate(state, command)
        case commands.RemoveStates():
            apply_removal(state, command)


def apply_failed_command(state: State, command: Command, time_s: float) -> None:
    """Apply that a command could not be run."""
    match command:
        case commands.StartPod() | commands.StopPod() | commands.PromoteWorker():
            apply_failed_pod_command(state, command, time_s)
        case commands.HoldGroup():
            abort_move(state, command.move)
        case commands.TakeSnapshot():
            apply_failed_take_snapshot(state, command, time_s)
        case commands.ReadLedgers():
            apply_failed_read_ledgers(state, command, time_s)
        case commands.OpenPin():
            apply_failed_open_pin(state, command, time_s)
        case commands.RemoveStates():
            apply_failed_removal(state, command)
        case _:
            pass  # The outbox retries a Dispatch forever, and the others have no outcome.
