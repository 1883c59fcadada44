"""What must be true of every log, besides the decisions in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elasticdl.master.core import State, decide
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.master.core.fold import Fold
from elasticdl.master.core.invariants import check
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import Dispatch, PromoteWorker
from elasticdl.shared.messages.events import (
    Decided,
    LedgersRead,
    LogRecord,
    TaskFinished,
    TasksTaken,
    TaskTaken,
    TimerFired,
)
from elasticdl.shared.names import Incarnation, Purpose


def checked_fold(records: Sequence[LogRecord]) -> tuple[State, list[str]]:
    """Fold a log; also says which timers ended early.

    Raises:
        InvariantError: an invariant does not hold after some record.
    """
    folding, problems = Fold(), list[str]()
    for record in records:
        match record.envelope.event:
            case TimerFired(timer=timer, due_s=due_s):
                folding._release(record.seq - 1)  # As ``take`` does with a master's record, but without that record.
                set_to_s = folding.state.timers.get(timer)
                folding.take(record)
                if set_to_s not in (None, due_s) and timer not in folding.state.timers:
                    problems.append(f"timer {timer!r} ended, although it was set to another time since it fired")
            case _:
                folding.take(record)
        check(folding.state)
    state = folding.finish()
    check(state)
    return state, problems


def with_all_evaluations(state: State, records: Sequence[LogRecord]) -> tuple[State, list[str]]:
    """A state with the evaluations that it has forgotten; also says which decisions need these."""
    problems = list[str]()

    def decide_again(known: State, record: LogRecord, decided: Decided) -> None:
        if decided.after_seq >= record.seq:
            return  # A former master's, on its way while the log lost the records that it follows from.
        if (again := decide(known, decided.now_s).commands) != decided.commands:
            problems.append(f"decision #{record.seq} needs an evaluation that was forgotten: {decided}, not {again}")

    if not state.forgotten_evaluations:
        return state, []
    folding = Fold(State(forgets_evaluations=False), before_decision=decide_again)
    for record in records:
        folding.take(record)
    return replace(state, evaluations=folding.finish().evaluations), problems


def exported_before_the_audit(records: Sequence[LogRecord], state: State) -> list[str]:
    """The export of a job was ordered after the ledgers of its final snapshots were read."""
    ordered: dict[int, int] = {}
    finished: set[int] = set()
    audited: dict[str, int] = {}
    for record in records:
        match record.envelope.event:
            case Decided(commands=commands):
                ordered |= {each.dispatch: record.seq for each in commands if isinstance(each, Dispatch)}
            case TaskFinished(task=task, dispatch=dispatch) if task.purpose is Purpose.EXPORT and not task.number:
                finished.add(dispatch)
            case LedgersRead(ps=ps, manifest=manifest) if state.closing.manifests.get(ps) == manifest:
                audited.setdefault(ps, record.seq)  # A successor of the master may read the same ledgers once more.
            case _:
                pass
    last = max(audited.values(), default=0)
    if not state.job.output or any(ordered.get(dispatch, 0) > last for dispatch in finished):
        return []
    return ["the job has succeeded without an export that was ordered after its audit"]


def worked_as_a_spare(records: Sequence[LogRecord]) -> list[str]:
    """A worker of a job with spare workers takes tasks only after a decision has promoted its process."""
    promoted: set[Incarnation] = set()
    problems = list[str]()
    for record in records:
        envelope = record.envelope
        match envelope.event:
            case Decided(commands=commands):
                promoted |= {each.incarnation for each in commands if isinstance(each, PromoteWorker)}
            case TaskTaken() | TasksTaken() if envelope.incarnation not in promoted:
                problems.append(f"{envelope.incarnation} took a task and was not promoted")
            case _:
                pass
    return problems[:1]


def evaluated_wrongly(records: Sequence[LogRecord], state: State, spec: JobSpec) -> list[str]:
    """The results of an evaluation job are those of each task of its plan, once, by the log alone."""
    assert spec.validation is not None
    results = [each for each in state.evaluations if each.phase is EvaluationPhase.DONE]
    if len(results) != 1:
        return [f"the job has {len(results)} results"]
    if "missing" in results[0].results:
        return ["the metrics of the evaluation lack states that were removed too early"]
    counted: dict[int, TaskFinished] = {}
    dispatched: set[int] = set()
    for record in records:
        match record.envelope.event:
            case Decided(commands=commands):
                orders = (each for each in commands if isinstance(each, Dispatch) and each.purpose is Purpose.EVALUATE)
                dispatched |= {each.dispatch for each in orders if each.evaluation == results[0].number}
            case TaskFinished(task=task, dispatch=dispatch) as finished if dispatch in dispatched:
                if task.purpose is Purpose.EVALUATE:
                    counted.setdefault(task.number % spec.validation.tasks, finished)
            case _:
                pass
    found = sum(each.records for each in counted.values()), sum(each.checksum for each in counted.values()) % (1 << 64)
    if len(counted) == spec.validation.tasks and found == (spec.validation.records, spec.checksum):
        return []
    return [f"{len(counted)} tasks with {found[0]} records were evaluated, not {spec.validation.records} records"]
