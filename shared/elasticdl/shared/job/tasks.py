"""Tasks, as the master puts them on the queue and workers take them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated

from elasticdl.shared.names import Purpose

MetricStates = Mapping[str, Annotated[tuple[bytes, ...], "MetricState"]]
"""Metric name -> its state variables, each as little-endian float64 in row-major order; states add up."""

STATES_BYTES_MAX = 96
"""Metric states that take more than that, with the metrics' names, are not put into events."""
EVALUATION_METRICS, EPOCH_METRICS = "evaluation", "epoch"
"""Labels of the merge tasks that compute metrics."""
EVALUATION_SUM = "evaluation sum"
"""Label of the merge tasks that replace stored metric states by their sum."""
CALLBACKS, LAST_CALLBACKS = "callbacks", "last callbacks"
"""Labels of the merge tasks that run callbacks; after the last one no epoch follows."""
MODEL_LOST = "model_lost"
"""The only result of a callbacks' task that a ps interrupted: it restarted before a hook could save the model."""
NOTE_CHARS_MAX = 200
"""An event has few bytes, whatever a callback is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesFragment:
    """Some consecutive values of one state variable.

    Attributes:
        variable: position of the variable in the metric's states.
        length: how many values the variable has.
        offset: position of the first of these values in the variable.
        values: little-endian float64.
    """

    metric: str
    variable: int
    length: int
    offset: int
    values: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StatesPart:
    """A part of stored metric states."""

    fragments: tuple[StatesFragment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRef:
    """A task's name: its purpose and its number in that purpose's id space."""

    purpose: Purpose
    number: int

    def __hash__(self) -> int:
        return self.number  # A generated one would call the enum's, which is slow; few tasks share a number.

    def __str__(self) -> str:
        return f"{self.purpose.value} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """One publication of a task.

    Attributes:
        dispatch: number of the dispatch; with the task and the run it makes the message id.
        run: incarnation of the launcher that submitted or resumed the job last. If the end of the log is lost,
            dispatch numbers repeat, but never with the same run.
        evaluation: evaluate: number of the evaluation whose pinned model is read; merge: the evaluation or epoch, or
            the number of the callbacks' task; export: of task 0, the evaluation whose saved model is written to the
            job's output (0: the current model); of another task, the evaluation whose pinned model is saved.
        label: merge: one of the labels above; export: of task 0, URI of the
            output if it is not that of the submitted job; of another task, number of the saved model that stays beside
            it.
        states: merge of an evaluation: summed metric states.
        stored_states: merge: numbers of stored metric states (see ``StoredStates``) to add to them, in this order.
        logs: callbacks: metric name -> value of the epoch that has ended.
        learning_rate: train: the rate that callbacks have set for the task's epoch; None: that of the optimizer.
        audited: export of the current model: ps -> the instance whose final snapshot was audited. The model is read
            from these instances and no others: each absorbs nothing after its final snapshot. Callbacks: the instances
            that have the model at the end of the epoch.
        snapshots: export of the current model: URIs of the audited manifests, which have the rows of its tables.
        skipped: merge of an epoch: its tasks that a resume has skipped, which no ps needs to have.
        files: export of predictions: for each task of the plan, in order, the name of the file that counts.
    """

    task: TaskRef
    dispatch: int
    term: int
    evaluation: int = 0
    label: str = ""
    states: MetricStates = field(default_factory=lambda: MappingProxyType({}))
    run: str = ""
    audited: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[str, ...] = ()
    logs: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    learning_rate: float | None = None
    snapshots: tuple[str, ...] = ()
    stored_states: tuple[int, ...] = ()
    skipped: tuple[int, ...] = ()

    @property
    def message_id(self) -> str:
        """For the deduplication by NATS (an optimisation; correctness does not depend on it)."""
        return f"{self.run}.{self.task.purpose.value}.{self.task.number}.{self.dispatch}"


def states_of_evaluation(evaluation: int) -> str:
    """The group of the stored metric states of an evaluation."""
    return f"evaluation-{evaluation}"


def are_large(states: MetricStates) -> bool:
    """Whether states are to be stored beside the events."""
    return (
        sum(len(name) + sum(len(variable) for variable in variables) for name, variables in states.items())
        > STATES_BYTES_MAX
    )
