"""The decisions of a ps: what is answered to whom, and what a push changes. No sockets, no clock, no storage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.shard.admission import (
    RefusedError,
    check_batch,
    check_memory,
    check_plan,
    check_same_model,
    check_tables,
    check_task,
    check_version,
    parse_signature,
    pull_size,
)
from elasticdl.ps.shard.group import GroupCut, UpdatePolicy
from elasticdl.ps.shard.metric_sums import is_epoch_complete
from elasticdl.ps.shard.model_shard import Division, GroupVersion, ModelShard, ledger_of, most_backward
from elasticdl.ps.shard.pull_admission import PullAdmission
from elasticdl.ps.shard.regrouping import without
from elasticdl.ps.shard.shard_cut import Pin, ShardCut
from elasticdl.ps.shard.warm_start import WarmStart
from elasticdl.shared.errors import InvariantError, ProtocolError, TransientError, UserError
from elasticdl.shared.job.ledger import Verdict
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.aligned import aligned_floats
from elasticdl.shared.model.manifests import rebuilding
from elasticdl.shared.model.partitioning import dense_part
from elasticdl.shared.model.placement import Placement, Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import (
    Floats,
    Ids,
    Initialise,
    InitialiseReply,
    MetricsReply,
    NextBatch,
    NextBatchReply,
    Pull,
    PullReply,
    Push,
    PushReply,
    PushVerdict,
    ReadMetrics,
    RefusalKind,
)

_VERDICTS = {verdict: PushVerdict[verdict.name] for verdict in Verdict}


class Observer(Protocol):
    """Receives notifications. They are sent under the core's lock, so an observer must neither block nor call back."""

    def initialised(self) -> None:
        """A worker sent the initial weights."""

    def stepped(self, step: int) -> None:
        """A batch was absorbed; ``step`` is the number of absorbed batches."""

    def serving(self) -> None:
        """Pulls and pushes are served from now on. Sent without the lock."""


class PsCore:
    """One ps' shard of the model with everything that guards it. Thread-safe: one lock, held for one request at a time.

    Requests raise ``RefusedError`` for another plan or version of the placement, and while this ps is not ready.

    Args:
        plan: the training tasks; says how many batches and records there have to be.
        placement: which partitions belong to which ps, as far as is known.
        memory_bytes_max: bytes of weights and slots above which pushes are refused; 0: no limit.
        observer: receives notifications; None: nothing does.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        placement: Placement,
        number: int,
        policy: UpdatePolicy,
        memory_bytes_max: int = 0,
        observer: Observer | None = None,
    ) -> None:
        self.plan, self.tasks = plan, plan.tasks  # The number of epochs may change.
        self.placement = placement
        self.number = number
        self.policy = policy
        self.lock = threading.Lock()
        self.pulls = PullAdmission(policy, self.lock)
        self.pulls.set_role(is_gate=placement.gate == number, is_only=placement.holders == (number,))
        self.shard: ModelShard | None = None
        self.frozen = 0
        """The move until whose version of the placement pushes are refused; 0: none."""
        self.warm_start: WarmStart | None = None
        """Weights of another job, until the model that starts from them is saved."""
        self._ready = False
        self._pin = Pin()
        self._memory_bytes_max = memory_bytes_max
        self._observer = observer

    @property
    def step(self) -> int:
        """Batches absorbed."""
        return self.shard.step if self.shard else 0

    @property
    def owned(self) -> Ranges:
        """The partitions that the placement gives to this ps."""
        return self.placement.partitions(self.number)

    @property
    def serves(self) -> bool:
        """Whether a group is served here."""
        return self.shard is not None and bool(self.shard.groups)

    @property
    def has_undropped(self) -> bool:
        """Whether there may be rows that other ps serve now."""
        return self.shard is not None and self.shard.has_undropped

    @property
    def dropped_rows(self) -> int:
        """How often rows were dropped; not how many."""
        return self.shard.dropped_rows if self.shard else 0

    @property
    def has_model(self) -> bool:
        """Whether there is anything to save."""
        return self.shard is not None and bool(self.shard.groups or self.shard.held)

    @property
    def ledgers(self) -> tuple[GroupLedger, ...]:
        """The ledger of each group, as they are now."""
        with self.lock:
            return self.shard.ledgers if self.shard is not None else ()

    def install(self, shard: ModelShard) -> None:
        """Take over a restored shard, or an empty one to hold groups in."""
        with self.lock:
            if self.shard is not None:
                raise InvariantError("a shard is installed over another one")
            self.shard = shard

    def start_serving(self) -> None:
        """Serve pulls and pushes from now on: the log and the register contain all that recovery needs."""
        with self.lock:
            self._ready = True
        if self._observer:
            self._observer.serving()

    def observe(self, observer: Observer | None) -> None:
        """Notify another observer from now on; None: none."""
        with self.lock:
            self._observer = observer

    def initialise(self, request: Initialise) -> InitialiseReply:
        """Make the model; the first signature wins, every later one must equal it.

        Raises:
            RefusedError: another model or plan, or another version of the placement.
        """
        check_plan(request.plan, self.plan)
        signature = parse_signature(request.signature)
        with self.lock:
            check_version(request.placement_version, self.placement.version)
            if self.shard is not None:
                check_same_model(self.shard.signature, signature)
                return InitialiseReply(first=False)
            shard = new_model(signature, self.policy, self.owned, request.dense, self.warm_start)
            check_memory(shard.nbytes, self._memory_bytes_max)
            self.shard = shard
            if self._observer:
                self._observer.initialised()
            return InitialiseReply(first=True)

    def next_batch(self, request: NextBatch) -> NextBatchReply:
        """Where a task stands; asked by a worker that begins or continues it."""
        check_plan(request.plan, self.plan)
        check_task(request.task, request.batches, self.plan)
        with self.lock:
            shard = self.serving(request.placement_version)
            self.pulls.on_task_begun(request.task)
            return NextBatchReply(next_batch=shard.next_batch(TaskId(request.task), request.batches))

    def read_metrics(self, request: ReadMetrics) -> MetricsReply:
        """The metric sums of an epoch, if a group here has them. Sums of earlier epochs are on the log, and dropped."""
        check_plan(request.plan, self.plan)
        with self.lock:
            for group in self.serving(request.placement_version).groups:
                if group.metrics is not None:
                    group.metrics.drop_before(request.epoch)
                    found = group.metrics.of(request.epoch)
                    return MetricsReply(
                        complete=is_epoch_complete(group.ledger, self.plan, request.epoch, request.skipped),
                        batches=found.batches,
                        records=found.records,
                        states=found.states.copy(),
                    )
        return MetricsReply()

    def await_admission(self, request: Pull, *, now_s: float, timeout_s: float, sender: int = 0) -> bool:
        """Wait until ``pull`` does not delay a request, at most for ``timeout_s``; whether it does not."""

        def is_refused() -> bool:
            return self.shard is not None and bool(self.pulls.refusal(request, self.shard, now_s, sender))

        return request.batch is None or self.pulls.wait(is_refused, timeout_s)

    def pull(
        self, request: Pull, room: Callable[[int], Floats] = aligned_floats, *, now_s: float = 0.0, sender: int = 0
    ) -> PullReply:
        """The dense values and rows that are wanted.

        Args:
            room: gives memory for this many float32, aligned; the reply's arrays are views of it.
            now_s: monotonic time.

        Raises:
            RefusedError: another plan or version of the placement, not ready, no such pin, or the batch has to wait.
            ProtocolError: the request does not fit the model, or wants more than a frame holds.
        """
        check_plan(request.plan, self.plan)
        with self.lock:
            shard = self.serving(request.placement_version)
            check_tables(request, shard.signature)
            self.pulls.check(request, shard, now_s, sender)
            if not request.pin:
                with self._changing("the update of a prepared round"):
                    shard.follow_ring(request.batch)
            source = self._pin.of(request.pin) if request.pin else shard
            if source is None:
                raise RefusedError(RefusalKind.NO_PIN, f"evaluation {request.pin} is not pinned here")
            dense_size, rows_start, size = pull_size(request, shard.part.size)
            floats = room(size)
            dense, rows = floats[:dense_size], floats[rows_start:]
            wanted = dense if request.dense else None
            updates_ahead = 0 if request.pin else self.pulls.updates_ahead(request, shard)
            if updates_ahead:
                shard.pull(request.tables, rows, wanted, updates_ahead=updates_ahead)
            else:
                source.pull(request.tables, rows, wanted, averages=request.averages)
            self.pulls.on_pulled(request, shard, now_s, sender)
            return PullReply(
                iteration=source.iteration, step=source.step, dense=dense, rows=rows, updates_ahead=updates_ahead
            )

    def push(self, push: Push, now_s: float = 0.0) -> PushReply:
        """Absorb a batch in every group whose turn it is. Validated whole before anything changes.

        Raises:
            ProtocolError: the push does not fit plan or model.
            InvariantError: applying it failed; the state is undefined and the process must die.
        """
        check_plan(push.plan, self.plan)
        check_batch(push, self.plan)
        with self.lock:
            shard = self.serving(push.placement_version)
            if self.frozen:
                raise RefusedError(RefusalKind.NOT_READY, "a group is moving to another ps")
            divisions = shard.divide(push)
            applying = [division for division in divisions if division.verdict is Verdict.APPLIED]
            verdict = Verdict.APPLIED if applying else most_backward(divisions)
            answer, message = _VERDICTS[verdict], ""
            staleness: int | None = None
            if applying:
                if self._memory_bytes_max:
                    check_memory(shard.nbytes, self._memory_bytes_max)
                try:
                    for division in applying:
                        division.group.check(division.push)
                    shard.reserve(push)
                except NotFiniteError as error:
                    answer, message = PushVerdict.NOT_FINITE, str(error)
                except MemoryError as error:
                    raise RefusedError(RefusalKind.NOT_READY, "no memory for the rows of the push") from error
                else:
                    staleness = None if push.empty else shard.staleness(push)
                    self._apply(shard, applying, staleness or 0)
            next_batch = shard.next_batch(TaskId(push.task), push.batches)
            self.pulls.on_pushed(push, next_batch, now_s)
            return PushReply(
                verdict=answer,
                next_batch=next_batch,
                step=shard.step,
                message=message,
                staleness=staleness,
            )

    def check_serves(self) -> None:
        """Raise RefusedError for a command that needs the model before it exists; the command may be repeated later."""
        with self.lock:
            self.serving(self.placement.version)

    def open_pin(self, evaluation: int) -> int | None:
        """Keep the present state readable for an evaluation, in place of an earlier one; its step, see ``Pin.open``."""
        room = self.shard.room_for_cut() if self.shard else None
        with self.lock:
            shard = self.serving(self.placement.version)
            with self._changing("the update of a prepared round"):
                shard.follow_ring()  # The rows of a round that the ring may still have to commit: see ADR 46.
            return self._pin.open(evaluation, lambda: shard.cut(room=room))

    def close_pin(self, evaluation: int) -> None:
        """Forget an evaluation's state; nothing happens when it is not the pinned one."""
        with self.lock:
            if self._pin.of(evaluation):
                self._pin.close()

    def changed_since(self, versions: Sequence[GroupVersion], *, flush: bool) -> bool:
        """Whether ``cut`` would give another state than the one with these versions; with ``flush``, flushed."""
        with self.lock:
            shard = self.shard
            if shard is None:
                return False
            return shard.versions != tuple(versions) or (flush and shard.has_rest(self.tasks))

    def cut(self, *, dirty_only: bool, flush: bool, since: Sequence[int] = ()) -> ShardCut:
        """The state between two pushes, for a snapshot.

        Args:
            flush: make an update of half-filled accumulators first: nothing will follow that could fill them. Where
                some task is not finished, the order was for a former incarnation that had more, and nothing is flushed.
            since: ``generations`` of an earlier cut: only rows that changed after it.
        """
        room = self.shard.room_for_cut() if self.shard else None
        with self.lock:
            if self.shard is None:
                raise RefusedError(RefusalKind.NOT_INITIALISED, "the model is not initialised")
            if flush and self.shard.has_rest(self.tasks):
                self.shard.flush()
            return self.shard.cut(dirty_only=dirty_only, since=since, room=room)

    # --- moves -----------------------------------------------------------------------------------------------------

    def freeze(self, move: int) -> None:
        """Absorb nothing from now on until the outcome of a move is known."""
        with self.lock:
            if move > self.placement.version:
                self.frozen = move

    def await_rows(self, signature: ModelSignature, move: int, partitions: Ranges, manifest: str) -> bool:
        """Get ready for rows of a group that is going to be held, with the signature that this manifest has.

        Returns:
            False: the outcome of the move is known already.

        Raises:
            RefusedError: another model.
            DamagedError: no model has this signature.
        """
        with self.lock:
            if move <= self.placement.version:
                return False
            shard = self.shard
            # The signature of a copy that could not be held may have been wrong.
            is_unused = shard is not None and not (shard.groups or shard.held)
            if shard is None or (is_unused and shard.signature.digest() != signature.digest()):
                with rebuilding(manifest):
                    self.shard = shard = ModelShard(signature, self.policy)
            check_same_model(shard.signature, signature)
            self._pin.close()  # No evaluation continues while a group moves.
            if not shard.await_rows(move, partitions):
                raise RefusedError(
                    RefusalKind.NOT_READY, "rows of an earlier move can't be dropped while a cut is open"
                )
            return True

    def drop_some(self) -> bool:
        """Drop some rows that other ps serve now; returns whether there may be more."""
        with self.lock:
            return self.shard is not None and self.shard.drop_some()

    def hold_rows(self, move: int, store: int, ids: Ids, slabs: Floats, *, saved: bool) -> None:
        """Load rows of a group that is to be held, as ``RowStore.load``: int64[n], float32[n, slab width].

        Loads nothing once the outcome of the move is known: no group would own the rows, nor would they be dropped.
        """
        with self.lock:
            if move > self.placement.version:
                self._shard().stores[store].load(ids, slabs, saved=saved)

    def hold(self, move: int, cuts: Sequence[GroupCut]) -> tuple[GroupLedger, ...]:
        """Hold groups whose rows are loaded; they are served once the placement says so.

        Returns:
            Their ledgers; empty: the outcome of the move is known already.
        """
        with self.lock:
            if move <= self.placement.version:
                return ()
            self._shard().hold(move, cuts)
            return tuple(ledger_of(group) for group in self._shard().held)

    def adopt(self, placement: Placement) -> bool:
        """Adopt a later version of the placement: serve held groups that it gives to this ps, drop what it takes away.

        Returns:
            Whether it was later.

        Raises:
            TransientError: it gives this ps partitions that a damaged snapshot lost; the next incarnation gathers them.
        """
        with self.lock:
            if placement.version <= self.placement.version:
                return False
            gained = without(placement.partitions(self.number), self.owned)
            if self._ready and gained and not (self.shard and self.shard.covers(gained)):
                raise TransientError(f"version {placement.version} of the placement gives this ps what it has lost")
            before = self.owned
            self.placement = placement
            if self.frozen <= placement.version:
                self.frozen = 0
            if self.owned != before:
                self._pin.close()
            self.pulls.set_role(is_gate=placement.gate == self.number, is_only=placement.holders == (self.number,))
            if self.shard is not None:
                self.shard.adopt(self.owned, placement.version)
            return True

    def _shard(self) -> ModelShard:
        if self.shard is None:
            raise InvariantError("there is no shard to hold anything in")
        return self.shard

    def _apply(self, shard: ModelShard, applying: Sequence[Division], staleness: int) -> None:
        push = applying[0].push
        with self._changing(f"task {push.task}, batch {push.batch}: applying a checked push"):
            for division in applying:
                division.group.apply(division.push, staleness)
            shard.merge()
        if self._observer:
            self._observer.stepped(shard.step)

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """Half-applied state must never be served or saved, whatever goes wrong."""
        try:
            yield
        except Exception as error:
            self._ready = False
            raise InvariantError(f"{what} failed") from error

    def serving(self, placement_version: int) -> ModelShard:
        """The shard, if it serves this version of the placement (else RefusedError); the caller has the lock."""
        check_version(placement_version, self.placement.version)
        if self.shard is None or not self.shard.groups:
            raise RefusedError(RefusalKind.NOT_INITIALISED, "the model is not initialised")
        if not self._ready:
            raise RefusedError(RefusalKind.NOT_READY, "the start of this ps is not on the log yet")
        return self.shard


def new_model(
    signature: ModelSignature, policy: UpdatePolicy, owned: Ranges, dense: Floats, warm: WarmStart | None = None
) -> ModelShard:
    """A shard with one group.

    Args:
        warm: weights of another job to start from instead, as far as they fit.

    Raises:
        ProtocolError: the values do not fit the signature.
        RefusedError: the model can't be trained here.
    """
    part = dense_part(signature.dense, owned)
    if dense.size != part.size:  # Before anything of the size that the signature names is allocated.
        raise ProtocolError(f"{dense.size} initial values for {part.size} dense elements")
    if warm and (problem := warm.problem(signature)):
        raise RefusedError(RefusalKind.USER, f"{problem}. {warm.note(signature)}")
    try:
        shard = ModelShard(signature, policy)
        group = shard.create(owned)
        group.dense.set(warm.dense(signature, part, dense) if warm else dense)
        if warm:
            warm.load_rows(shard)
            warm.load_optimizer(signature, group)
    except (UserError, NotFiniteError) as error:
        raise RefusedError(RefusalKind.USER, f"the model can't be trained: {error}") from error
    except MemoryError as error:
        message = "the model needs more memory than this ps has: use more ps (--num_ps_pods)"
        raise RefusedError(RefusalKind.USER, message) from error
    shard.install([group])
    return shard
