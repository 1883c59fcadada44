"""Steps that need their round, over real sockets: with dead workers, too few workers, and a gate that forgets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from tests.unit.ps.example import PLAN, signature
from tests.unit.ps.servers import Servers

from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import RunningBatch
from elasticdl.shared.names import PodName, Purpose, TaskId
from elasticdl.shared.wire.messages import NO_DOUBLES, NO_FLOATS, NO_IDS, Exchange
from elasticdl.worker.core.batch_clock import Activity, Work
from elasticdl.worker.execution.batch_store import LoadedBatch
from elasticdl.worker.execution.round_steps import RoundAbortedError, RoundSettings, RoundSteps
from elasticdl.worker.ports import Doubles, Reducer, TableIds
from elasticdl.worker.ps_client import PsClient, Pulled, RoundSum

ROUNDS = Rounds(plan=PLAN, tasks_per_cohort=3)
MEMBERS = ROUNDS.members(TaskId(0), 0)
RECORDS = {0: 3, 1: 2, 2: 1}
POSITIONS = 4
DENSE = np.array([2.0, 5.0], np.float32)


def given_by(member: int, position: int, before: Doubles, *, backward: bool) -> Doubles:
    """What a batch contributes: it depends on all sums before."""
    return np.sin((1.0 + member) * (position + 1.5) * DENSE + 0.1 * before + (0.7 if backward else 0.0))


def expected(members: tuple[int, ...] = MEMBERS) -> Doubles:
    """The last sum of a round, computed in one place."""
    total = np.zeros(2)
    for backward, position in PLACES:
        weights = {one: float(RECORDS[one]) if backward else 1.0 for one in members}
        total = np.sum([weights[one] * given_by(one, position, total, backward=backward) for one in members], axis=0)
        # A member gets the sum of gradients in units of its own weight; here all continue with the plain sum.
    return np.asarray(total)


PLACES = [(False, position) for position in range(POSITIONS)] + [
    (True, position) for position in range(POSITIONS)[::-1]
]


@dataclass(frozen=True, slots=True)
class Result:
    """See ``StepResult``."""

    total: Doubles
    loss: float = 0.0
    dense_gradient: Any = field(default_factory=lambda: NO_FLOATS)
    statistics_update: Any = field(default_factory=lambda: NO_FLOATS)
    row_gradients: Any = field(default_factory=lambda: MappingProxyType({}))
    row_magnitudes: Any = field(default_factory=lambda: MappingProxyType({}))
    finite: bool = True
    overflow: bool = False
    problem: str = ""
    metric_states: Any = field(default_factory=lambda: NO_DOUBLES)


class Network:
    """A model whose step is a chain of sums."""

    def __init__(self) -> None:
        self.trained: list[int] = []
        self.measured: list[int] = []
        self.at: Callable[[int, bool, int], None] = lambda member, backward, position: None

    def train(self, batch: Any, dense: Any, rows: Any, *, step_seed: int, reducer: Reducer | None = None) -> Result:
        np.testing.assert_array_equal(dense, DENSE)
        assert step_seed == 100 + batch
        assert reducer is not None
        self.trained.append(batch)
        total = np.zeros(2)
        for backward, position in PLACES:
            self.at(batch, backward, position)
            weight = float(RECORDS[batch]) if backward else 1.0
            own = given_by(batch, position, total, backward=backward)
            try:
                total = weight * reducer.reduce(position, own, backward=backward)
            except ElasticDLError as error:
                raise UserError("the model raised an error") from error  # As TensorFlow does.
        dense[:] = 0.0  # TensorFlow may overwrite what it is given.
        return Result(total)

    def measure(self, batch: Any, result: Any) -> Any:
        self.measured.append(batch)
        return result


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker's steps; see ``round_steps.RoundServices``."""

    client: PsClient
    empty: set[int] = field(default_factory=set)
    unreadable: set[int] = field(default_factory=set)
    network: Network = field(default_factory=Network)
    rows_from: int | None = None
    """Number of updates that the rows of helpers contain; None: there are no tables."""
    iteration: int = 7
    patience_s: float = 0.2
    recorded: list[tuple[int, int]] = field(default_factory=list)
    """Batches that were computed."""
    activities: list[Activity] = field(default_factory=list)
    """Steps that run."""
    not_waiting: int = 0
    """Exchanges during which the step of the batch did not count as waiting."""
    exchanged: list[Exchange] = field(default_factory=list)
    steps: RoundSteps = field(init=False)

    def __post_init__(self) -> None:
        settings = RoundSettings(plan=PLAN.fingerprint, rounds=ROUNDS, patience_s=self.patience_s)
        self.steps = RoundSteps(settings, self.network, self)

    def load(self, task: TaskId, batch: int) -> LoadedBatch:
        if task in self.unreadable:
            raise RoundAbortedError("storage is away")
        fed = None if task in self.empty else int(task)
        ids = TableIds(unique=NO_IDS, inverse=np.empty(0, np.int32))
        tables = {} if self.rows_from is None else {"a": ids}
        return LoadedBatch(batch=fed, records=RECORDS[task], checksum=0, tables=tables)

    def pull_rows(self, loaded: LoadedBatch) -> Pulled:
        assert self.rows_from is not None
        return replace(self.weights(), iterations={PodName("ps-0"): self.rows_from})

    def exchange(self, request: Exchange) -> RoundSum:
        self.exchanged.append(request)
        mine = [
            each
            for each in self.activities
            if each.batch and (each.batch.task.number, each.batch.batch) == (request.task, request.batch)
        ]
        self.not_waiting += not (request.absent or all(each.waits for each in mine))
        return self.client.exchange(request)

    @contextmanager
    def running(self, task: TaskId, batch: int) -> Iterator[Activity]:
        self.recorded.append((task, batch))
        running = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=task), batch=batch)
        activity = Activity(batch=running, work=Work.TRAIN, thread=0)
        self.activities.append(activity)
        yield activity
        self.activities.remove(activity)

    def step_seed(self, task: TaskId, batch: int) -> int:
        return 100 + task

    def weights(self) -> Pulled:
        return Pulled(
            dense=DENSE.copy(),
            rows={"a": NO_FLOATS},
            iterations={PodName("ps-0"): self.iteration},
            step=0,
            release=lambda: None,
        )

    def train(self, task: int, batch: int = 0) -> Doubles:
        loaded = self.load(TaskId(task), batch)
        loaded.weights = self.weights()
        result: Any = self.steps.train(TaskId(task), batch, loaded)
        return np.asarray(result.total)


@pytest.fixture
def servers() -> Iterator[Servers]:
    made = Servers(1, policy=UpdatePolicy(rounds=ROUNDS))
    yield made
    made.close()


def worker_of(servers: Servers, **settings: Any) -> Worker:
    return Worker(client=servers.client(signature()), **settings)


def side_by_side(*functions: Callable[[], Any]) -> list[Any]:
    """Call functions in threads; their results."""
    results: dict[int, Any] = {}

    def call(number: int) -> None:
        results[number] = functions[number]()

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a step waits forever"
    return [results[number] for number in range(len(functions))]


def test_as_many_workers_as_batches(servers: Servers) -> None:
    workers = [worker_of(servers, patience_s=20.0) for _ in MEMBERS]
    totals = side_by_side(*(lambda n=n: workers[n].train(n) for n in MEMBERS))
    for total in totals:
        np.testing.assert_allclose(total, expected(), rtol=1e-12)
    assert [one.network.trained for one in workers] == [[0], [1], [2]]
    assert [one.network.measured for one in workers] == [[0], [1], [2]]
    assert [one.not_waiting for one in workers] == [0, 0, 0], "waiting for the others is not hanging"


def test_one_worker_computes_each_batch_once(servers: Servers) -> None:
    worker = worker_of(servers)
    for batch in range(3):
        worker.iteration += 1
        for task in MEMBERS:
            np.testing.assert_allclose(worker.train(task, batch), expected(), rtol=1e-12)
    assert sorted(worker.network.trained) == sorted([*MEMBERS] * 3)
    assert worker.network.measured == [*MEMBERS] * 3
    assert set(worker.recorded) == {(task, batch) for task in MEMBERS for batch in range(3)}


def test_a_worker_that_dies_in_its_step_is_replaced(servers: Servers) -> None:
    dying, other, third = (worker_of(servers) for _ in range(3))

    def die(member: int, backward: bool, position: int) -> None:
        if member == 0 and (backward, position) == (True, 2):
            dying.steps.close()
            raise UserError("killed")

    dying.network.at = die

    def fail() -> None:
        with pytest.raises(UserError, match="killed"):
            dying.train(0)

    results = side_by_side(fail, lambda: other.train(1), lambda: third.train(2))
    for total in results[1:]:
        np.testing.assert_allclose(total, expected(), rtol=1e-12)
    np.testing.assert_allclose(other.train(0), expected(), rtol=1e-12)


@pytest.mark.parametrize("place", [(False, 0), (False, 2), (True, 3), (True, 0)])
def test_a_gate_that_restarts_forgets_all(servers: Servers, place: tuple[bool, int]) -> None:
    workers = [worker_of(servers) for _ in range(2)]
    restarted = threading.Event()

    def restart(member: int, backward: bool, position: int) -> None:
        if (backward, position) == place and member == 1 and not restarted.is_set():
            restarted.set()
            servers.kill(0)
            servers.restart(0)

    workers[1].network.at = restart
    totals = side_by_side(lambda: workers[0].train(0), lambda: workers[1].train(1))
    for total in totals:
        np.testing.assert_allclose(total, expected(), rtol=1e-12)
    servers.kill(0)
    servers.restart(0)  # The first two batches are absorbed: no worker will train them again.
    np.testing.assert_allclose(workers[0].train(2), expected(), rtol=1e-12)
    late = worker_of(servers)
    servers.kill(0)
    servers.restart(0)
    np.testing.assert_allclose(late.train(2), expected(), rtol=1e-12)


def test_a_frozen_worker_continues_with_the_weights_that_it_has(servers: Servers) -> None:
    frozen, other = worker_of(servers), worker_of(servers)
    thawed = threading.Event()

    def freeze(member: int, backward: bool, position: int) -> None:
        if member == 0 and (backward, position) == (False, 2):
            assert thawed.wait(20)

    frozen.network.at = freeze

    def later() -> None:
        for batch in range(4):
            for task in (1, 2, 0):
                other.train(task, batch)
            other.iteration += 1
        servers.kill(0)
        servers.restart(0)
        thawed.set()

    totals = side_by_side(lambda: frozen.train(0), later)
    np.testing.assert_allclose(totals[0], expected(), rtol=1e-12)


def test_a_batch_without_records_is_left_out(servers: Servers) -> None:
    worker, other = worker_of(servers, empty={1}), worker_of(servers, empty={1})
    totals = side_by_side(lambda: worker.train(0), lambda: other.train(2))
    for total in totals:
        np.testing.assert_allclose(total, expected((0, 2)), rtol=1e-12)
    other.iteration += 1
    worker.iteration += 1
    other.steps.contribute_nothing(TaskId(1), 1, other.weights())
    totals = side_by_side(lambda: worker.train(0, 1), lambda: other.train(2, 1))
    np.testing.assert_allclose(totals[0], expected((0, 2)), rtol=1e-12)


def test_contributions_from_other_weights_are_not_used(servers: Servers) -> None:
    behind, worker = worker_of(servers), worker_of(servers, iteration=8)
    totals = side_by_side(lambda: behind.train(0), lambda: worker.train(1))
    for total in totals:
        np.testing.assert_allclose(total, expected(), rtol=1e-12)
    assert sorted(behind.network.trained) == sorted(worker.network.trained) == [*MEMBERS]


def test_a_batch_that_can_not_be_read_ends_the_step(servers: Servers) -> None:
    worker = worker_of(servers, unreadable={2})
    with pytest.raises(RoundAbortedError, match="task 2, batch 0: storage is away"):
        worker.train(0)
    worker.unreadable.clear()
    np.testing.assert_allclose(worker.train(0), expected(), rtol=1e-12)


def test_rows_of_other_weights_are_not_used(servers: Servers) -> None:
    worker = worker_of(servers, rows_from=8)
    with pytest.raises(RoundAbortedError, match="its rows have changed since"):
        worker.train(0)
    worker.iteration = 8
    np.testing.assert_allclose(worker.train(0), expected(), rtol=1e-12)


def test_a_step_of_a_closed_round_does_not_send_its_sums_again(servers: Servers) -> None:
    worker = worker_of(servers)
    sent: list[int] = []

    def restart(member: int, backward: bool, position: int) -> None:
        if (backward, position) == (True, 2) and not sent:
            servers.kill(0)
            servers.restart(0)
            worker.steps.close()
            sent.append(len(worker.exchanged))

    worker.network.at = restart
    with pytest.raises(RoundAbortedError, match="ends"):
        worker.train(0)
    assert len(worker.exchanged) <= sent[0] + len(MEMBERS), "each step has sent one more sum"


def test_connections_to_a_former_gate_are_closed() -> None:
    servers = Servers(2, policy=UpdatePolicy(rounds=ROUNDS))
    worker = worker_of(servers)
    try:
        for gate in (0, 1):
            worker.train(0)
            assert {wire.identity for wire in worker.client._sockets._open} == {servers.ps[gate].incarnation}
            servers.placement = servers.placement.moved(((0, 128),), to=1, version=2)
            for ps in servers.ps:
                ps.core.adopt(servers.placement)
            worker.iteration += 1
    finally:
        servers.close()


def test_a_worker_that_ends_does_not_wait(servers: Servers) -> None:
    worker = worker_of(servers, patience_s=20.0)

    def end(member: int, backward: bool, position: int) -> None:
        worker.steps.close()

    worker.network.at = end
    with pytest.raises(RoundAbortedError, match="ends"):
        worker.train(0)
