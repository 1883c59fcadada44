"""What a decision changes by being on the log: its commands are as good as given."""

from __future__ import annotations

from typing import assert_never

from elasticdl.master.core.evaluation import abandon_evaluation, start_evaluation_if_new
from elasticdl.master.core.moves import give_up_move, note_move_command
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.state import EvaluationPhase, Merge, State
from elasticdl.master.core.timers import PIN_PAUSE, READ_PAUSE, SNAPSHOT_PAUSE, restart_of
from elasticdl.shared.messages import commands
from elasticdl.shared.messages.commands import Command, JobState
from elasticdl.shared.names import Purpose

ORDER_AGAIN_S = 1.0
"""Seconds before an order is given again that did not arrive."""


def note_command(state: State, command: Command, now_s: float) -> None:
    """Fold one command of a decision."""
    match command:
        case commands.StartPod():
            _note_start(state, command)
        case commands.StopPod():
            _note_stop(state, command)
        case commands.Dispatch():
            _note_dispatch(state, command)
        case commands.ReturnDelivery():
            state.to_return = [reply for reply in state.to_return if reply != command.reply]
        case commands.BeginMove() | commands.HoldGroup() | commands.PublishPlacement():
            note_move_command(state, command, now_s)
        case commands.TakeSnapshot():
            _note_snapshot(state, command, now_s)
        case commands.OpenPin():
            start_evaluation_if_new(state, command.evaluation, now_s)
        case commands.ClosePin():
            state.pins_to_close.discard((command.ps, command.evaluation))
        case commands.ReadLedgers():
            state.closing.reading.add(command.ps)
        case commands.SetTimer():
            state.timers[command.timer] = command.due_s
        case commands.EnterState():
            _note_state(state, command, now_s)
        case _:
            assert_never(command)


def note_failed_command(state: State, command: Command, time_s: float) -> None:
    """Fold that a command could not be carried out: what it should have led to is to be decided again."""
    match command:
        case commands.StartPod() | commands.StopPod():
            pod = state.pods.get(command.pod)
            if pod and pod.phase is PodPhase.ORDERED:
                pod.phase = PodPhase.EXITED
                state.timers[restart_of(pod.name)] = time_s + ORDER_AGAIN_S
            elif pod and isinstance(command, commands.StopPod) and command.kill:
                pod.phase, pod.is_silent = PodPhase.RUNNING, True
        case commands.TakeSnapshot(move=move) | commands.HoldGroup(move=move) if move:
            give_up_move(state, move)
        case commands.TakeSnapshot():
            state.closing.asked.discard(command.ps)
            state.stopping.asked.discard(command.ps)
            state.timers[SNAPSHOT_PAUSE] = time_s + ORDER_AGAIN_S
        case commands.ReadLedgers():
            state.closing.reading.discard(command.ps)
            state.timers[READ_PAUSE] = time_s + ORDER_AGAIN_S
        case commands.OpenPin() if state.evaluation and state.evaluation.number == command.evaluation:
            abandon_evaluation(state)
            state.timers[PIN_PAUSE] = time_s + ORDER_AGAIN_S
        case _:
            pass  # A Dispatch is never given up; the others are reminders.


def _note_start(state: State, command: commands.StartPod) -> None:
    pod = state.pods.get(command.pod)
    if pod is None:
        state.pods[command.pod] = Pod(name=command.pod, service=command.service)
    else:
        pod.phase = PodPhase.ORDERED


def _note_stop(state: State, command: commands.StopPod) -> None:
    pod = state.pods.get(command.pod)
    if pod and pod.phase is not PodPhase.EXITED:
        pod.phase = PodPhase.STOPPING
        pod.is_silent = False


def _note_dispatch(state: State, command: commands.Dispatch) -> None:
    state.dispatches = max(state.dispatches, command.dispatch)
    evaluation = state.evaluation
    match command.purpose:
        case Purpose.TRAIN:
            if state.training:
                state.training.note_dispatch(command.tasks)
        case Purpose.EVALUATE:
            if evaluation and evaluation.number == command.evaluation:
                evaluation.phase = EvaluationPhase.RUNNING
        case Purpose.MERGE:
            for start, end in command.tasks:
                for number in range(start, end):
                    state.merges[number] = Merge(label=command.label, subject=command.evaluation)
            if evaluation and command.label == "evaluation" and evaluation.number == command.evaluation:
                evaluation.phase = EvaluationPhase.MERGING
        case Purpose.EXPORT:
            state.closing.export_dispatched = True
        case Purpose.PREDICT:
            pass


def _note_snapshot(state: State, command: commands.TakeSnapshot, now_s: float) -> None:
    state.requests = max(state.requests, command.request)
    if command.move:
        note_move_command(state, command, now_s)
    elif state.job_state is JobState.STOPPING:
        state.stopping.request = command.request
        state.stopping.asked.add(command.ps)
    else:
        state.closing.request = command.request
        state.closing.asked.add(command.ps)


def _note_state(state: State, command: commands.EnterState, now_s: float) -> None:
    state.job_state = command.state
    if state.is_final:
        state.ended_s = now_s
        state.timers.clear()
