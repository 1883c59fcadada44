"""A toy replica, and a toy master that forms generations, for rings within one process."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.buffers import Bytes
from elasticdl.worker.ps_client.requests import PushRequest
from elasticdl.worker.ring.listener import RingSettings
from elasticdl.worker.ring.ports import BatchFacts, Generation
from elasticdl.worker.ring.replica_set import ReplicaSet, RingClosedError

RATE = 0.01
SIZE = 20_000
"""More than what goes through the sockets."""


class ToyState:
    """Rounds of ``width`` tasks with ``batches`` batches each; the model is a vector. Follows ``ReplicaState``."""

    def __init__(self, *, width: int = 3, batches: int = 4, size: int = SIZE, dtype: Any = np.float32) -> None:
        self._width, self._batches = width, batches
        self.weights = np.zeros(size, np.float64)
        self.has_model = False
        self.step = 0
        self.before_apply: Callable[[int], None] = lambda step: None
        self.absorbed: list[tuple[int, int]] = []
        self.records = 0
        self._dtype = dtype

    @property
    def gradient_size(self) -> int:
        return self.weights.size

    @property
    def magnitudes(self) -> tuple[int, int]:
        return self.weights.size, 0

    @property
    def rounds(self) -> int:
        return self._batches

    def initialise(self) -> None:
        self.weights += 1.0
        self.has_model = True

    def round_of(self, task: TaskId, batch: int) -> Sequence[tuple[TaskId, int]]:
        return [(TaskId(one), batch) for one in range(self._width) if batch >= self.step]

    def next_batch(self, task: TaskId, batches: int) -> int:
        return min(self.step, batches)

    def is_open(self, task: TaskId, batch: int) -> bool:
        return batch == self.step

    def apply(self, batches: Sequence[BatchFacts], gradient: Any) -> None:
        self.before_apply(self.step)
        records = sum(facts.records for facts in batches)
        if gradient is not None:
            assert gradient.dtype == self._dtype
            self.weights -= RATE * gradient.astype(np.float64) / (1 if self._dtype == np.float32 else records)
        self.absorbed += [(facts.task, facts.batch) for facts in batches]
        self.records += records
        self.step += 1

    @property
    def is_complete(self) -> bool:
        return self.step == self._batches

    def checksums(self) -> tuple[int, ...]:
        return tuple([zlib.crc32(part.data) for part in np.split(self.weights, 4)])

    def save(self) -> Callable[[], Sequence[Bytes]]:
        numbers = np.array([self.step, self.records, *np.array(self.absorbed, np.int64).reshape(-1)], np.int64)
        weights = self.weights.copy()
        return lambda: [weights.view(np.uint8), numbers.view(np.uint8)]

    def load(self, parts: Sequence[Bytes]) -> None:
        self.weights = parts[0].view(np.float64).copy()
        numbers = parts[1].view(np.int64)
        self.step, self.records = int(numbers[0]), int(numbers[1])
        pairs = numbers[2:].reshape(-1, 2)
        self.absorbed = [(int(task), int(batch)) for task, batch in pairs]
        self.has_model = True


def gradient_of(task: int, batch: int, size: int) -> Any:
    """A deterministic gradient of a batch."""
    return np.random.default_rng((task, batch)).normal(size=size).astype(np.float32)


def request_of(state: ToyState, task: int, batch: int) -> PushRequest:
    """What a worker pushes for a batch."""
    return PushRequest(
        task=TaskId(task),
        batch=batch,
        batches=state.rounds,
        records=10 + task,
        checksum=task,
        dense_gradient=gradient_of(task, batch, state.gradient_size),
        statistics_update=np.full(3, task, np.float32),
    )


@dataclass
class ToyMaster:
    """Forms a generation when all members of the last one are ready or known to be gone, and new ones are ready."""

    expected: int
    number: int = 0
    members: tuple[RingMember, ...] = ()
    ready: dict[PodName, tuple[RingMember, bool, bool]] = field(default_factory=dict)
    gone: set[Incarnation] = field(default_factory=set)
    receivers: dict[Incarnation, Callable[[Generation], None]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    present: Generation | None = None

    def on_ready(self, member: RingMember, *, left: int, has_model: bool, is_near: bool) -> None:
        with self.lock:
            is_member = member.incarnation in {one.incarnation for one in self.members}
            if is_member and left < self.number:
                return
            self.ready[member.worker] = member, has_model, is_near
            self._form()

    def on_gone(self, incarnation: Incarnation) -> None:
        with self.lock:
            self.gone.add(incarnation)
            self.ready = {name: one for name, one in self.ready.items() if one[0].incarnation != incarnation}
            self._form(is_loss=incarnation in {one.incarnation for one in self.members})

    def tasks_of(self, member: RingMember, width: int) -> list[int]:
        """The tasks that a member computes now."""
        members = [one.incarnation for one in self.members if one.incarnation not in self.gone]
        if member.incarnation not in members:
            return []
        return list(range(members.index(member.incarnation), width, len(members)))

    def _form(self, *, is_loss: bool = False) -> None:
        kept = [one for one in self.members if one.incarnation not in self.gone]
        names = {one.incarnation for one in kept}
        joined = [one for one in self.ready.values() if one[0].incarnation not in names and (one[2] or not kept)]
        joined.sort(key=lambda one: not one[1])
        waits = any(one.worker not in self.ready for one in kept)
        if (waits and not is_loss and not joined) or len(kept) + len(joined) < self.expected or not kept + joined:
            return
        self.number += 1
        self.expected = 0
        self.members = (*kept, *[one[0] for one in joined])
        self.ready.clear()
        self.present = Generation(number=self.number, members=self.members)
        for incarnation, receive in self.receivers.items():
            if incarnation not in self.gone:
                receive(self.present)


class ToyWorker:
    """A member with a toy replica. Follows ``Membership`` and ``Leading``."""

    def __init__(self, master: ToyMaster, name: str, incarnation: str, *, node: str = "", **options: Any) -> None:
        self.master = master
        is_deterministic = options.pop("is_deterministic", False)
        check_steps, precision = options.pop("check_steps", 0), options.pop("precision", "float32")
        self.state = ToyState(dtype=np.float64 if is_deterministic else np.float32, **options)
        self.errors: list[BaseException] = []
        self.differences: list[tuple[int, int]] = []
        settings = RingSettings(
            worker=PodName(name),
            incarnation=Incarnation(incarnation),
            token="secret",
            is_deterministic=is_deterministic,
            check_steps=check_steps,
            precision=precision,
        )
        self.ring = ReplicaSet(settings, self.state, self, self, failed=self._fail)
        self.member = RingMember(
            worker=settings.worker, incarnation=settings.incarnation, address=self.ring.address, node=node
        )

    def report_ready(self, *, left: int, step: int, has_model: bool, is_near: bool, reason: str) -> None:
        self.master.on_ready(self.member, left=left, has_model=has_model, is_near=is_near)

    def report_difference(self, *, step: int, tensor: int) -> None:
        self.differences.append((step, tensor))

    def on_generation(self, receive: Callable[[Generation], None]) -> None:
        with self.master.lock:
            self.master.receivers[self.member.incarnation] = receive
            if self.master.present is not None:
                receive(self.master.present)

    def lead(self, generation: Generation) -> None:
        if not self.state.has_model:
            self.state.initialise()
            threading.Thread(target=self.ring.model_ready).start()

    def follow(self, generation: Generation) -> None: ...

    def credits(self, generation: Generation) -> Mapping[PodName, Incarnation]:
        return {PodName("ps-0"): Incarnation(f"{generation.number}")}

    def train(self, width: int) -> None:
        """Compute the batches of this member, round by round, and those of members that are gone."""
        try:
            for batch in range(self.state.rounds):
                computed: set[int] = set()
                while not self.ring.wait_until_open(TaskId(0), batch + 1, 0.02):
                    for task in set(self.master.tasks_of(self.member, width)) - computed:
                        if self.ring.wait_until_open(TaskId(task), batch, 0):
                            self.ring.push(request_of(self.state, task, batch))
                            computed.add(task)
                    if self.state.step > batch + 1:
                        break
        except RingClosedError:
            pass

    def die(self) -> None:
        """End as a killed process does: its connections are reset, and the master learns of it."""
        self.ring.close()
        self.master.on_gone(self.member.incarnation)

    def _fail(self, error: BaseException) -> None:
        self.errors.append(error)
        self.ring.close()
