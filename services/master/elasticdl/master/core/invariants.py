"""What is true of a job's state after every record. The simulator checks it all the time."""

from __future__ import annotations

from itertools import pairwise

from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.moves.state import MovePhase
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.training.state import Training
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages.commands import JobState


def check(state: State) -> None:
    """Verify the invariants of a state.

    Raises:
        InvariantError: with the first one that does not hold.
    """
    if state.training is not None:
        _check_training(state.training)
        _check_credits(state, state.training)
    _check_pods(state)
    _check_move(state)
    _check_evaluations(state)
    _check_end(state)
    sequences = [seq for seq, _ in state.pending_commands]
    _require(all(one < other for one, other in pairwise(sequences)), f"pending commands out of order: {sequences}")


def _check_training(training: Training) -> None:
    """Every task that was dispatched is complete, outstanding or lacking, and only one of these.

    A ledger may contain tasks above the frontier: a log that lost its end forgot that they were dispatched.
    """
    complete, tasks = training.complete, training.plan.tasks
    _require(0 <= training.frontier <= tasks, f"{training.frontier} tasks were dispatched, the plan has {tasks}")
    waiting = training.outstanding | training.lacking
    both = training.outstanding & training.lacking
    _require(not both, f"tasks {sorted(both)} are both outstanding and lacking")
    done = [task for task in waiting if task in complete]
    _require(not done, f"tasks {sorted(done)} are complete and yet to be done")
    missing = {task for start, end in complete.gaps(0, training.frontier) for task in range(start, end)}
    _require(missing == waiting, f"tasks {sorted(missing ^ waiting)} below {training.frontier} have no state")


def _check_credits(state: State, training: Training) -> None:
    """A task is complete exactly if every ps is credited with it, and a ps is credited as the instance that runs."""
    for ps, credit in training.credits.items():
        uncredited = len(training.complete) - len(training.complete.intersection(credit.finished))
        _require(not uncredited, f"{uncredited} complete tasks are not credited to {ps}")
        pod = state.pods.get(ps)
        known = pod is not None and credit.incarnation == pod.incarnation
        _require(not credit.incarnation or known, f"{ps} is credited as {credit.incarnation}, which does not run")


def _check_pods(state: State) -> None:
    for pod in state.pods.values():
        running = pod.phase is PodPhase.RUNNING
        _require(not running or bool(pod.incarnation), f"{pod.name} runs and has no incarnation")
        _require(not running or pod.starts > 0, f"{pod.name} runs and was never started")


def _check_move(state: State) -> None:
    move = state.move
    if move is None:
        return
    _require(move.donor != move.recipient, f"move {move.number} is from {move.donor} to itself")
    over = move.phase is MovePhase.ABORTED or move.number > state.placement.version
    _require(over, f"move {move.number} is in progress, and the placement has version {state.placement.version}")


def _check_evaluations(state: State) -> None:
    """Evaluations run one after the other."""
    final = (EvaluationPhase.DONE, EvaluationPhase.ABANDONED)
    running = [each.number for each in state.evaluations[:-1] if each.phase not in final]
    _require(not running, f"evaluations {running} have not ended, and a later one has begun")
    numbers = [each.number for each in state.evaluations]
    _require(all(one < other for one, other in pairwise(numbers)), f"evaluations out of order: {numbers}")


def _check_end(state: State) -> None:
    """A job succeeds only with an exact audit of a complete plan."""
    if state.job_state is not JobState.SUCCEEDED:
        return
    _require(state.training is not None and state.training.is_complete, "the job succeeded and training is incomplete")
    _require(state.closing.audit is not None and state.closing.audit.exact, "the job succeeded without an exact audit")
    _require(state.move is None, "the job succeeded while a move is in progress")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantError(message)
