"""What is true of a job's state after every record. The simulator checks it all the time."""

from __future__ import annotations

from functools import reduce
from operator import lt

from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.moves.state import MovePhase
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.master.core.state import State
from elasticdl.master.core.task_window import TaskWindow
from elasticdl.master.core.training.state import Training
from elasticdl.master.core.training.statistics import TrainingStatistics
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.commands import JobState


def check(state: State) -> None:
    """Verify the invariants of a state."""
    if state.training is not None:
        _check_training(state.training)
        _check_credits(state, state.training)
        _check_statistics(state.training.statistics)
    _check_pods(state)
    _check_ring(state)
    _check_move(state)
    _check_evaluations(state)
    _check_end(state)
    if not _ascends(sequences := [seq for seq, _ in state.pending_commands]):
        raise InvariantError(f"pending commands out of order: {sequences}")


def _check_training(training: Training) -> None:
    """Every task that was dispatched is complete, outstanding or lacking, and only one of these.

    A ledger may contain tasks above the frontier: a log that lost its end forgot that they were dispatched.
    """
    complete, tasks = training.complete, training.plan.tasks
    if not 0 <= training.frontier <= tasks:
        raise InvariantError(f"{training.frontier} tasks were dispatched, the plan has {tasks}")
    waiting = training.outstanding | training.lacking
    if both := training.outstanding & training.lacking:
        raise InvariantError(f"tasks {sorted(both)} are both outstanding and lacking")
    if done := [task for task in waiting if task in complete]:
        raise InvariantError(f"tasks {sorted(done)} are complete and yet to be done")
    missing = {task for start, end in complete.gaps(0, training.frontier) for task in range(start, end)}
    if missing != waiting:
        raise InvariantError(f"tasks {sorted(missing ^ waiting)} below {training.frontier} have no state")


def _check_credits(state: State, training: Training) -> None:
    """A task is complete exactly if every ps is credited with it, and a ps is credited as the instance that runs."""
    complete = training.complete
    beyond: list[RangeSet] = [credit.beyond for credit in training.credits.values()]
    credited_to_all: RangeSet = reduce(RangeSet.intersection, beyond) if beyond else RangeSet()
    if credited_to_all:
        raise InvariantError("tasks are credited to every ps and not complete")
    for ps, credit in training.credits.items():
        if twice := complete.intersection(credit.beyond):
            raise InvariantError(f"{len(twice)} complete tasks are credited to {ps} once more")
        pod = state.pods.get(ps)
        if credit.incarnation and (pod is None or credit.incarnation != pod.incarnation):
            raise InvariantError(f"{ps} is credited as {credit.incarnation}, which does not run")


def _check_statistics(statistics: TrainingStatistics) -> None:
    """The sums of all epochs are those of each."""
    epochs = statistics.epochs.values()
    sums = sum(each.batches for each in epochs), sum(each.records for each in epochs)
    if sums != (statistics.batches, statistics.records):
        raise InvariantError(
            f"the epochs have {sums} batches and records, not {statistics.batches, statistics.records}"
        )


def _check_pods(state: State) -> None:
    for pod in state.pods.values():
        if pod.phase is PodPhase.RUNNING and not pod.incarnation:
            raise InvariantError(f"{pod.name} runs and has no incarnation")
        if pod.phase is PodPhase.RUNNING and not pod.starts:
            raise InvariantError(f"{pod.name} runs and was never started")
        if pod.phase is PodPhase.WAITING and (pod.is_promoted or not pod.incarnation):
            raise InvariantError(f"{pod.name} waits to be promoted, and was, or is unknown")


def _check_ring(state: State) -> None:
    """A process is a member once, and only the leader serves the model."""
    members = state.ring.members
    if len({member.incarnation for member in members}) < len(members):
        raise InvariantError(f"generation {state.ring.generation} has a member twice")
    if members and not state.ring.generation:
        raise InvariantError("a ring without a generation has members")
    for pod in state.pods.values():
        if pod.is_hosted and pod.instance and pod.instance != state.ring.instances.get(members[0].incarnation):
            raise InvariantError(f"{pod.name} is served by {pod.instance}, which does not lead the ring")


def _check_move(state: State) -> None:
    move, version = state.move, state.placement.version
    if move is None:
        return
    if move.donor == move.recipient:
        raise InvariantError(f"move {move.number} is from {move.donor} to itself")
    if move.phase is not MovePhase.ABORTED and move.number <= version:
        raise InvariantError(f"move {move.number} is in progress, and the placement has version {version}")


def _check_evaluations(state: State) -> None:
    """Evaluations run one after the other."""
    final = (EvaluationPhase.DONE, EvaluationPhase.ABANDONED)
    if running := [each.number for each in state.evaluations[:-1] if each.phase not in final]:
        raise InvariantError(f"evaluations {running} have not ended, and a later one has begun")
    if not _ascends(numbers := [each.number for each in state.evaluations]):
        raise InvariantError(f"evaluations out of order: {numbers}")
    if state.evaluation:
        _check_window(state.evaluation.tasks.window)
    _check_window(state.prediction.window)


def _check_window(window: TaskWindow) -> None:
    """Every task that was dispatched has a result or is outstanding, and only one of these."""
    if both := window.finished.intersection(window.outstanding):
        raise InvariantError(f"tasks {sorted(both)} have results and are outstanding")
    if lost := [*window.finished.union(window.outstanding).gaps(0, window.frontier)]:
        raise InvariantError(f"tasks {lost} below {window.frontier} are neither outstanding nor have results")


def _check_end(state: State) -> None:
    """A training job succeeds only with an exact audit of a complete plan; other kinds have an empty one."""
    if state.job_state is not JobState.SUCCEEDED:
        return
    if state.training is None or not state.training.is_complete:
        raise InvariantError("the job succeeded and training is incomplete")
    is_exact = state.closing.audit is not None and state.closing.audit.exact
    if state.job.kind.trains and not is_exact:
        raise InvariantError("the job succeeded without an exact audit")
    if state.move is not None:
        raise InvariantError("the job succeeded while a move is in progress")


def _ascends(numbers: list[int]) -> bool:
    return all(map(lt, numbers, numbers[1:]))
