"""The decisions of a ps: what is answered to whom, and what a push changes. No sockets, no clock, no storage."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from elasticdl.ps.admission import RefusedError, check_batch, check_plan, check_same_model, check_task
from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.group import Group, GroupCut, UpdatePolicy
from elasticdl.shared.errors import InvariantError, ProtocolError, UserError
from elasticdl.shared.ledger import Verdict
from elasticdl.shared.model import ModelSignature
from elasticdl.shared.names import TaskId
from elasticdl.shared.placement import DensePart, Placement, dense_parts
from elasticdl.shared.plan import Plan
from elasticdl.shared.wire.frames import ALIGNMENT_BYTES, FrameLimits
from elasticdl.shared.wire.messages import (
    Floats,
    Initialise,
    Initialised,
    NextBatch,
    Pull,
    Pulled,
    Push,
    Pushed,
    PushVerdict,
    RefusalKind,
    Standing,
)

_VERDICTS = {
    Verdict.APPLIED: PushVerdict.APPLIED,
    Verdict.DUPLICATE: PushVerdict.DUPLICATE,
    Verdict.GAP: PushVerdict.GAP,
}


class Watcher(Protocol):
    """Who wants to know what happened. Called under the core's lock, so it must not block nor call back."""

    def initialised(self) -> None:
        """A worker's Initialise made the model."""

    def stepped(self, step: int) -> None:
        """A batch was absorbed; so many are now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """An evaluation's cut."""

    evaluation: int
    cut: GroupCut


class PsCore:
    """One ps' group with everything that guards it. Thread-safe: one lock, held for one request at a time.

    Args:
        plan: the training tasks; says how many batches and records there have to be.
        placement: which rows belong to which ps.
        part: position of this ps in the placement.
        policy: when pushes become updates.
        memory_bytes_max: bytes of weights and slots above which pushes are refused; 0: no limit.
        watcher: who wants to know what happened.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        placement: Placement,
        part: int,
        policy: UpdatePolicy,
        memory_bytes_max: int = 0,
        watcher: Watcher | None = None,
    ) -> None:
        self.plan = plan
        self.placement = placement
        self.part = part
        self.policy = policy
        self.lock = threading.Lock()
        self.group: Group | None = None
        self._reply_bytes_max = FrameLimits().payload_bytes_max - 2 * ALIGNMENT_BYTES
        self._ready = False
        self._pin: Pin | None = None
        self._memory_bytes_max = memory_bytes_max
        self._watcher = watcher

    @property
    def step(self) -> int:
        """Batches absorbed."""
        return self.group.ledger.step if self.group else 0

    def make_group(self, signature: ModelSignature) -> Group:
        """An empty group of this ps for a model; not installed yet.

        Raises:
            UserError: the engine does not know an optimizer, schedule or initializer.
        """
        return Group(signature, self._dense_part(signature), self.policy)

    def install(self, group: Group) -> None:
        """Take over a restored group."""
        with self.lock:
            if self.group is not None:
                raise InvariantError("a group is installed over another one")
            self.group = group

    def open_for_business(self) -> None:
        """Everything that must be on record is: pulls and pushes are served from now on."""
        with self.lock:
            self._ready = True

    def initialise(self, request: Initialise) -> Initialised:
        """Make the model; the first signature wins, every later one must equal it.

        Raises:
            RefusedError: another model or plan.
        """
        check_plan(request.plan, self.plan)
        if (request.parts, request.part) != (self.placement.ps, self.part):
            raise RefusedError(
                RefusalKind.MOVED,
                f"meant for ps {request.part} of {request.parts}, this is {self.part} of {self.placement.ps}",
            )
        try:
            signature = ModelSignature.from_json(request.signature)
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(f"not a model signature: {error}") from error
        with self.lock:
            if self.group is not None:
                check_same_model(self.group.signature, signature)
                return Initialised(first=False)
            try:
                group = self.make_group(signature)
                group.dense.set(request.dense)
            except (UserError, NotFiniteError) as error:
                raise RefusedError(RefusalKind.USER, f"the model can't be trained: {error}") from error
            self.group = group
            if self._watcher:
                self._watcher.initialised()
            return Initialised(first=True)

    def next_batch(self, request: NextBatch) -> Standing:
        """Where a task stands.

        Raises:
            RefusedError: another plan, or not ready.
            ProtocolError: no such task.
        """
        check_plan(request.plan, self.plan)
        check_task(request.task, request.batches, self.plan)
        with self.lock:
            group = self._serving()
            return Standing(next_batch=group.ledger.next_batch(TaskId(request.task), request.batches))

    def pull_size(self, request: Pull) -> tuple[int, int]:
        """How many floats a pull answers: (dense, rows).

        Raises:
            RefusedError: not ready.
            ProtocolError: it names tables that the model does not have, or wants more than a frame holds.
        """
        with self.lock:
            group = self._serving()
            for table in request.tables:
                if table.table >= len(group.tables) or table.width != group.tables[table.table].table.width:
                    raise ProtocolError(f"the model has no table {table.table} of width {table.width}")
            dense = group.dense.size if request.dense else 0
            rows = sum(table.ids.size * table.width for table in request.tables)
            if 4 * (dense + rows) > self._reply_bytes_max:
                raise ProtocolError(f"a pull of {dense + rows} floats is beyond {self._reply_bytes_max} bytes")
            return dense, rows

    def pull(self, request: Pull, *, dense: Floats, rows: Floats) -> Pulled:
        """Write what is wanted into ``dense`` and ``rows``, sized as ``pull_size`` said.

        Raises:
            RefusedError: another plan, not ready, or that pin is not open.
            ProtocolError: the request does not fit the model.
        """
        check_plan(request.plan, self.plan)
        with self.lock:
            group = self._serving()
            source: Group | GroupCut = group
            iteration, step = group.iteration, group.ledger.step
            if request.pin:
                if self._pin is None or self._pin.evaluation != request.pin:
                    raise RefusedError(RefusalKind.NO_PIN, f"evaluation {request.pin} is not pinned here")
                source = self._pin.cut
                iteration, step = source.iteration, source.ledger.step
            source.pull(request.tables, rows, dense if request.dense else None)
            return Pulled(iteration=iteration, step=step, dense=dense, rows=rows)

    def push(self, push: Push) -> Pushed:
        """Absorb a batch if it is its turn. Validated whole before anything changes.

        Raises:
            RefusedError: another plan or placement, or not ready.
            ProtocolError: the push does not fit plan or model.
            InvariantError: applying it failed; the state is undefined and the process must die.
        """
        check_plan(push.plan, self.plan)
        check_batch(push, self.plan)
        with self.lock:
            group = self._serving()
            if push.table_version != self.placement.version:
                raise RefusedError(RefusalKind.MOVED, f"the placement is at version {self.placement.version}")
            verdict = group.ledger.judge(TaskId(push.task), push.batch, push.batches)
            message = ""
            answer = _VERDICTS[verdict]
            if verdict is Verdict.APPLIED:
                self._check_memory(group)
                try:
                    group.check(push)
                except NotFiniteError as error:
                    answer, message = PushVerdict.NOT_FINITE, str(error)
                except MemoryError as error:
                    raise RefusedError(RefusalKind.NOT_READY, "no memory for the rows of the push") from error
                else:
                    self._apply(group, push)
            return Pushed(
                verdict=answer,
                next_batch=group.ledger.next_batch(TaskId(push.task), push.batches),
                step=group.ledger.step,
                message=message,
            )

    def open_pin(self, evaluation: int) -> int:
        """Keep the present state readable for an evaluation, in place of an earlier one; its step.

        Raises:
            RefusedError: not ready.
        """
        with self.lock:
            group = self._serving()
            if self._pin is None or self._pin.evaluation != evaluation:
                if self._pin is not None:
                    self._pin.cut.close()
                self._pin = Pin(evaluation=evaluation, cut=group.cut())
            return self._pin.cut.ledger.step

    def close_pin(self, evaluation: int) -> None:
        """Forget an evaluation's state; nothing happens when it is not the pinned one."""
        with self.lock:
            if self._pin is not None and self._pin.evaluation == evaluation:
                self._pin.cut.close()
                self._pin = None

    def changed_since(self, step: int, *, flush: bool) -> bool:
        """Whether ``cut`` would give another state than the one at ``step``; with ``flush``, flushed."""
        with self.lock:
            group = self.group
            return group is not None and (group.ledger.step != step or (flush and group.accumulator.batches > 0))

    def cut(self, *, dirty_only: bool, flush: bool) -> GroupCut:
        """The state between two pushes, for a snapshot.

        Args:
            dirty_only: only rows that changed since the last finished cut.
            flush: make an update of half-filled accumulators first: nothing will follow that could fill them.

        Raises:
            RefusedError: there is no model yet.
        """
        with self.lock:
            if self.group is None:
                raise RefusedError(RefusalKind.NOT_INITIALISED, "the model is not initialised")
            if flush:
                self.group.flush()
            return self.group.cut(dirty_only=dirty_only)

    def _apply(self, group: Group, push: Push) -> None:
        try:
            group.apply(push)
        except Exception as error:
            # Half-applied state must never be served or saved, whatever went wrong.
            self._ready = False
            raise InvariantError(f"task {push.task}, batch {push.batch}: applying a checked push failed") from error
        if self._watcher:
            self._watcher.stepped(group.ledger.step)

    def _check_memory(self, group: Group) -> None:
        if self._memory_bytes_max and group.nbytes > self._memory_bytes_max:
            raise RefusedError(
                RefusalKind.USER,
                f"the model needs {group.nbytes} bytes on this ps, {self._memory_bytes_max} are allowed: use more ps",
            )

    def _serving(self) -> Group:
        if self.group is None:
            raise RefusedError(RefusalKind.NOT_INITIALISED, "the model is not initialised")
        if not self._ready:
            raise RefusedError(RefusalKind.NOT_READY, "start-up is not on record yet")
        return self.group

    def _dense_part(self, signature: ModelSignature) -> DensePart:
        return dense_parts(signature.dense, self.placement.ps)[self.part]
