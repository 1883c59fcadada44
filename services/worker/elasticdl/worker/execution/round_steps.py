"""Training steps that need the other batches of their round, also where no other worker computes these.

Each sum over a round waits until every batch of the round has contributed. Batches that no other worker computes are
computed here, in further threads: for their contributions, and if the core orders one of them later, for its result.
docs/adr/0011-synchronous-training.md shows that every wait ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

import numpy as np

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.names import TaskId
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.wire.messages import NO_DOUBLES, Exchange
from elasticdl.worker.core.batch_clock import Activity
from elasticdl.worker.execution.batch_store import LoadedBatch
from elasticdl.worker.ports import Doubles, Floats, RoundTrainee, StepResult, TableRows
from elasticdl.worker.ps_client import Pulled, RoundSum
from elasticdl.worker.running_batches import waiting

_log = get_logger()


class RoundAbortedError(ElasticDLError):
    """This worker can't compute a batch of the round now. Pull the weights again and repeat the step."""


class RoundServices(Protocol):
    """What the steps of a round need from the rest of the worker. Any thread may call."""

    def load(self, task: TaskId, batch: int) -> LoadedBatch:
        """Read and feed a batch. Raises ``RoundAbortedError``: it can't be read."""
        ...

    def pull_rows(self, loaded: LoadedBatch) -> Pulled:
        """Pull the rows of a batch."""
        ...

    def exchange(self, request: Exchange) -> RoundSum:
        """Contribute to a sum, and wait a little for the other batches."""
        ...

    def running(self, task: TaskId, batch: int) -> AbstractContextManager[Activity]:
        """Record within the block that this thread computes a batch, in case that it ends the process or hangs."""
        ...

    def step_seed(self, task: TaskId, batch: int) -> int:
        """What the random numbers of a batch follow from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """The rounds of a job.

    Attributes:
        patience_s: seconds without progress after which no other worker computes a batch that is missing, at least. A
            worker whose steps take longer waits as long as a step.
        patience_max_s: the same, at most.
    """

    plan: str
    rounds: Rounds
    patience_s: float = 0.5
    patience_max_s: float = 5.0


class _Key(NamedTuple):
    first: int
    """Task of the cohort."""
    batch: int
    weights: str
    """The number of updates of each ps: the same round comes again with other weights if one of them is restored."""


@dataclass(slots=True)
class _Step:
    """The computation of one batch of the round in this process."""

    done: threading.Event = field(default_factory=threading.Event)
    result: StepResult | None = None
    error: ElasticDLError | None = None


class RoundSteps:
    """Runs training steps whose batch is normalised together with the other batches of its round."""

    def __init__(self, settings: RoundSettings, model: RoundTrainee, services: RoundServices) -> None:
        self._settings = settings
        self._model = model
        self._services = services
        self._round: _Round | None = None
        self._is_closed = False
        self._patience_s = settings.patience_s

    def train(self, task: TaskId, batch: int, loaded: LoadedBatch) -> StepResult:
        """Loss, gradients and metrics of a batch with weights. Raises ``RoundAbortedError`` if it can't now."""
        weights = loaded.weights
        if weights is None:
            raise ValueError(f"task {task}, batch {batch} has no weights")
        if len(self._settings.rounds.members(task, batch)) == 1:
            seed = self._services.step_seed(task, batch)
            with self._services.running(task, batch):
                return self._model.train(loaded.batch, weights.dense, loaded.rows(), step_seed=seed)
        round_ = self._enter(task, batch, weights)
        started_s = time.monotonic()
        try:
            result = round_.train(task, loaded)
        except ElasticDLError:
            round_.close()
            self._round = None
            raise
        took_s = time.monotonic() - started_s
        self._patience_s = min(max(self._settings.patience_s, took_s), self._settings.patience_max_s)
        with self._services.running(task, batch):
            return self._model.measure(loaded.batch, result)

    def contribute_nothing(self, task: TaskId, batch: int, weights: Pulled) -> None:
        """Tell the other workers that a batch has no records."""
        if len(self._settings.rounds.members(task, batch)) > 1:
            self._enter(task, batch, weights).contribute_nothing(task)

    def close(self) -> None:
        """Let steps that wait fail; any thread may call."""
        self._is_closed = True
        if self._round is not None:
            self._round.close()

    def _enter(self, task: TaskId, batch: int, weights: Pulled) -> _Round:
        first = self._settings.rounds.cohort(task).start
        key = _Key(first, batch, weights_key(weights))
        if self._round is None or self._round.key != key:
            alone: set[int] = set()
            if self._round is not None:
                self._round.close()
                alone = {member - self._round.key.first for member in self._round.trained}
            helped = {TaskId(first + offset) for offset in alone}
            settings = replace(self._settings, patience_s=self._patience_s)
            self._round = _Round(settings, key, np.array(weights.dense), helped, self._model, self._services)
            if self._is_closed:
                self._round.close()
        return self._round


def weights_key(weights: Pulled) -> str:
    """Identifies pulled weights: the updates made by each ps."""
    return ",".join(f"{ps}:{iteration}" for ps, iteration in sorted(weights.iterations.items()))


class _Round:
    """The steps of one round in this process.

    Args:
        dense: the dense vector; TensorFlow may overwrite the memory that a step is given.
        helped: batches of these tasks are computed without waiting for other workers.
    """

    def __init__(
        self,
        settings: RoundSettings,
        key: _Key,
        dense: Floats,
        helped: set[TaskId],
        model: RoundTrainee,
        services: RoundServices,
    ) -> None:
        self.key = key
        self.trained: set[TaskId] = set()
        """Batches that the core ordered."""
        self.is_closed = False
        self.settings = settings
        self._dense = dense
        self._helped = helped
        self._model, self._services = model, services
        self._members = settings.rounds.members(TaskId(key.first), key.batch)
        self._steps: dict[TaskId, _Step] = {}
        self._missing_since: dict[TaskId, float] = {}
        self._lock = threading.Lock()

    def train(self, task: TaskId, loaded: LoadedBatch) -> StepResult:
        """The result of a batch, from a helper if one has begun with it."""
        self.trained.add(task)
        helper = self._steps.get(task)
        if helper is not None:
            helper.done.wait()
            if helper.result is not None:
                return helper.result
        step = self._steps[task] = _Step()
        for member in self._members:
            if member in self._helped:
                self._help(member)
        try:
            assert loaded.weights is not None
            step.result = self._run(task, loaded, loaded.weights.dense, loaded.rows())
        except ElasticDLError as error:
            step.error = error
            raise
        finally:
            step.done.set()
        return step.result

    def contribute_nothing(self, task: TaskId) -> None:
        self.trained.add(task)
        self._services.exchange(self.request(task, absent=True))

    def close(self) -> None:
        """Let the steps of this round fail where they wait."""
        self.is_closed = True

    def request(
        self,
        task: TaskId,
        position: int = 0,
        values: Doubles = NO_DOUBLES,
        *,
        backward: bool = False,
        absent: bool = False,
    ) -> Exchange:
        return Exchange(
            plan=self.settings.plan,
            placement_version=0,
            task=task,
            batch=self.key.batch,
            weights=self.key.weights,
            position=position,
            backward=backward,
            absent=absent,
            values=values,
        )

    def on_progress(self) -> None:
        """A sum is complete: all batches of the round are being computed."""
        self._missing_since.clear()

    def check_open(self) -> None:
        """Raise RoundAbortedError once the round is closed."""
        if self.is_closed:
            raise RoundAbortedError("the worker continues with another round, or ends")

    def on_missing(self, missing: tuple[int, ...]) -> None:
        """Batches keep a step of this round waiting.

        Raises:
            RoundAbortedError: the round is closed, or one of the batches can't be computed here.
        """
        self.check_open()
        now_s = time.monotonic()
        for task in map(TaskId, missing):
            waits_s = now_s - self._missing_since.setdefault(task, now_s)
            step = self._steps.get(task)
            if waits_s < self.settings.patience_s or (step is not None and not step.done.is_set()):
                continue
            if step is not None and step.error is not None:
                raise RoundAbortedError(f"task {task}, batch {self.key.batch}: {step.error}") from step.error
            self._help(task)

    def _help(self, task: TaskId) -> None:
        """Compute a batch that is missing. A finished one is computed again: the gate has forgotten it."""
        with self._lock:
            running = self._steps.get(task)
            if running is not None and not running.done.is_set():
                return
            step = self._steps[task] = _Step()
        threading.Thread(target=self._compute, args=(task, step), name=f"round member {task}", daemon=True).start()

    def _compute(self, task: TaskId, step: _Step) -> None:
        try:
            loaded = self._services.load(task, self.key.batch)
            if loaded.batch is None:
                self._services.exchange(self.request(task, absent=True))
                return
            if loaded.tables:
                loaded.weights = self._services.pull_rows(loaded)
            try:
                if loaded.weights is not None and weights_key(loaded.weights) != self.key.weights:
                    raise RoundAbortedError("its rows have changed since")
                step.result = self._run(task, loaded, np.array(self._dense), loaded.rows())
            finally:
                if loaded.weights is not None:
                    loaded.weights.release()
        except ElasticDLError as error:
            _log.info("batch of the round not computed", task=task, batch=self.key.batch, reason=str(error))
            step.error = error
        except Exception as error:
            step.error = RoundAbortedError(f"unexpected error: {error!r}")
            raise
        finally:
            step.done.set()

    def _run(self, task: TaskId, loaded: LoadedBatch, dense: Floats, rows: TableRows) -> StepResult:
        seed = self._services.step_seed(task, self.key.batch)
        with self._services.running(task, self.key.batch) as activity:
            contributions = _Contributions(self, task, loaded.records, activity, self._services.exchange)
            try:
                return self._model.train(loaded.batch, dense, rows, step_seed=seed, reducer=contributions)
            except ElasticDLError:
                if contributions.error is not None:  # TensorFlow passes on only its text.
                    raise contributions.error from None
                raise


class _Contributions:
    """What one batch contributes to the sums of its round; ``activity``: the step, which waits meanwhile."""

    def __init__(
        self,
        round_: _Round,
        task: TaskId,
        records: int,
        activity: Activity,
        exchange: Callable[[Exchange], RoundSum],
    ) -> None:
        self.error: Exception | None = None
        self._round = round_
        self._task = task
        self._records = records
        self._activity = activity
        self._exchange = exchange
        self._sent: list[Exchange] = []
        self._origin: object = None

    def reduce(self, position: int, values: Doubles, *, backward: bool) -> Doubles:
        """See ``Reducer``. The update is the mean of gradients by records, so a gradient of the sum counts by them."""
        try:
            weight = float(self._records) if backward else 1.0
            request = self._round.request(self._task, position, weight * values, backward=backward)
            with waiting(self._activity):
                return self._sum(request) / weight
        except Exception as error:  # It crosses TensorFlow, which passes on only its text.
            self.error = error
            raise

    def _sum(self, request: Exchange) -> Doubles:
        while True:
            found = self._exchange(request)
            if found.origin != self._origin:
                for sent in self._sent:  # The gate has forgotten them, and other steps may wait for them.
                    self._round.check_open()
                    self._exchange(sent)
                self._origin = found.origin
            if not found.missing:
                self._sent.append(request)
                self._round.on_progress()
                return found.values
            self._round.on_missing(found.missing)
