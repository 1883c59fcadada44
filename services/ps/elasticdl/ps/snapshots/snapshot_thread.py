"""When snapshots are taken, what follows from one, and which old ones are deleted: a thread of its own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

import structlog

from elasticdl.ps.moves.copies import Copies
from elasticdl.ps.moves.holder import Holder, HoldOrder
from elasticdl.ps.registration import Registration
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.snapshots.history import Snapshot, SnapshotHistory
from elasticdl.ps.snapshots.next_cut import next_cut
from elasticdl.ps.snapshots.requests import Copy, Order, SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter, Written, delete_snapshot
from elasticdl.shared.errors import FencedError, PermanentError, TransientError, UserError
from elasticdl.shared.messages.events import GroupHeld, ModelInitialised, SnapshotTaken
from elasticdl.shared.model.manifests import decode_manifest
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.process.event_publisher import EventPublisher
from elasticdl.shared.storage import ObjectStore

_DROP_PAUSE_S = 0.001
"""Seconds in which pushes get their turn while rows are dropped."""


class SnapshotThread:
    """Takes snapshots one at a time. The first one opens the core for business.

    Args:
        core: whose state.
        ps: its name.
        writer: writes them.
        store: where old ones are deleted.
        registration: where complete ones are registered.
        publisher: tells about them.
        policy: when they are due.
        clock: for intervals.
        failed: called once with an error that ends this process.
    """

    def __init__(
        self,
        *,
        core: PsCore,
        ps: PodName,
        writer: SnapshotWriter,
        store: ObjectStore,
        registration: Registration,
        publisher: EventPublisher,
        policy: SnapshotPolicy,
        clock: Clock,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._core = core
        self._writer = writer
        self._store = store
        self._registration = registration
        self._publisher = publisher
        self._policy = policy
        self._clock = clock
        self._failed = failed
        self._log = structlog.get_logger().bind(part="snapshots")
        self._wake = threading.Condition()
        self._orders: deque[Order | HoldOrder] = deque()
        self._stopping = False
        self._initialised = False
        self._dropping = False
        """Whether rows are to be dropped."""
        self._due_step = policy.steps
        self._taken: dict[int, SnapshotTaken] = {}
        self._untold: tuple[SnapshotTaken | GroupHeld, str] | None = None
        """What is registered, and what asked for it, of which the log does not know yet."""
        self._holder = Holder(core, store, ps)
        self._copies = Copies(core)
        self._dropped_rows = 0
        self._history = SnapshotHistory(chain_max=policy.chain_max, chains_kept=policy.chains_kept)
        self._number = 0
        self._due_s = 0.0
        self._planned = 0
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)

    def adopt(self, kept: Sequence[Snapshot]) -> None:
        """The core was restored from the last of these, or saved at once; call before ``start``."""
        self._history.adopt(kept)
        self._initialised = True

    def save(self) -> str:
        """Take and register a full snapshot, and return its manifest's URI; call before ``start``, after ``adopt``.

        Raises:
            FencedError: another life has taken the name over.
            TransientError, PermanentError: broker or storage.
        """
        self._write(flush=False)
        return self._history.newest[0]

    def start(self) -> None:
        """Begin."""
        self._due_s = self._clock.monotonic() + self._policy.pause_s(0)
        self._due_step = self._next_multiple(self._core.step)
        if not self._core.owned:
            self._initialised = True  # What comes here is initialised already.
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a snapshot that is being written is finished first."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def initialised(self) -> None:
        """The model is there: snapshot 0 is wanted."""
        with self._wake:
            self._wake.notify()

    def lost(self) -> None:
        """There may be rows that have become somebody else's."""
        with self._wake:
            self._dropping = True
            self._wake.notify()

    def stepped(self, step: int) -> None:
        """A batch was absorbed."""
        if self._policy.steps and step >= self._due_step:
            with self._wake:
                self._wake.notify()

    def order(self, order: Order | HoldOrder) -> None:
        """Have a snapshot taken soon; a repeated request is answered with what it got the first time.

        A HoldOrder has groups loaded first.
        """
        with self._wake:
            self._orders.append(order)
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._tidy()
            while self._wait():
                if self._is_due():
                    self._attend()
                self._drop_rows()
        except BaseException as error:  # the thread's outermost frame
            self._failed(error)

    def _tidy(self) -> None:
        """Delete what former lives left; only if the register named a snapshot, so that we know what is needed."""
        if not self._history:
            return
        try:
            garbage = self._writer.garbage(self._history.snapshots)
            # A successor's objects would look like garbage, too: if the name is still ours, none of these is one.
            self._registration.confirm()
            self._writer.delete(garbage)
            self._log.debug("garbage of former lives deleted", objects=len(garbage))
        except FencedError:
            raise
        except (TransientError, PermanentError) as error:
            self._log.warning("garbage of former lives was not deleted", reason=str(error))

    def _wait(self) -> bool:
        """Until there is something to do; False: stop."""
        with self._wake:
            while not self._stopping and not self._is_due() and not self._dropping:
                has_model = self._core.has_model
                now_s = self._clock.monotonic()
                self._wake.wait(self._policy.wait_s(due_s=self._due_s, now_s=now_s, has_model=has_model))
            return not self._stopping

    def _is_due(self) -> bool:
        if self._initialised and self._orders:
            return True
        if not self._core.has_model:
            return False
        # While pushes wait for a move there is nothing new to save, and the recipient needs disk and processor.
        by_clock = self._policy.interval_s > 0 and self._clock.monotonic() >= self._due_s and not self._core.frozen
        by_steps = self._policy.steps > 0 and self._core.step >= self._due_step
        return not self._initialised or self._untold is not None or bool(self._orders) or by_clock or by_steps

    def _attend(self) -> None:
        with self._wake:
            order = self._orders[0] if self._orders and self._initialised else None
        try:
            self._tell()
            if not self._initialised:
                self._first()
            elif isinstance(order, HoldOrder):
                self._hold(order)
            elif order is not None and not self._core.has_model:
                # It was for a former life, and what it is about has gone elsewhere.
                self._log.warning("there is nothing to take a snapshot of", request=order.request, move=order.move)
            elif order is not None and self._has_taken(order):
                self._untold = self._taken[order.request], order.cause
            elif order is not None and order.copy:
                self._copy(order, order.copy)
            else:
                self._take(order)
            if order is not None:
                with self._wake:
                    self._orders.popleft()
            self._tell()
            self._delete_old()
        except TransientError as error:
            self._log.warning("snapshot postponed", reason=str(error), retry_s=self._policy.retry_s)
            with self._wake:
                self._wake.wait_for(lambda: self._stopping, self._policy.retry_s)

    def _first(self) -> None:
        shard = self._core.shard
        if shard is None:
            raise ValueError("no model to take the first snapshot of")
        self._take(None)
        self._tell()
        self._publisher.publish(
            ModelInitialised(
                signature=shard.signature.digest(),
                parameters=shard.part.size,
            )
        )
        self._initialised = True
        self._core.open_for_business()

    def _has_taken(self, order: Order) -> bool:
        taken = self._taken.get(order.request)
        return taken is not None and taken.manifest != order.damaged

    def _hold(self, order: HoldOrder) -> None:
        """Load groups and register them; what can't be held is somebody else's problem, not the end of this ps."""
        try:
            if not self._holder.begin(order):
                return
            if self._holder.wants_snapshot:
                self._write(flush=False)
                self._plan_next()
            held = self._holder.load(order)
        except FencedError:
            raise
        except (PermanentError, UserError, RefusedError) as error:
            held = GroupHeld(move=order.move, manifest=order.manifest, failure=str(error))
        if held is None:
            return
        if not held.failure:
            self._register_held(order.move)
        self._untold = held, order.cause
        self._log.info("group held", move=order.move, manifest=order.manifest, failure=held.failure)

    def _register_held(self, move: int) -> None:
        """Put what is held into a snapshot on record; written is only what can't be referred to."""
        if not self._holder.may_be_referred_to:
            self._write(flush=False, extend=True)
            return
        copies = self._holder.unregistered
        if not copies:
            return
        base = self._holder.base(self._history)
        uri, data = self._writer.reference(self._core, base, copies, number=self._number, move=move)
        self._number += 1
        self._store.write(uri, data)
        manifest = decode_manifest(data, uri)
        self._registration.publish(uri, manifest.step, self._history.older_than(uri, manifest))
        self._history.add(uri, manifest)
        self._holder.registered()

    def _copy(self, order: Order, copy: Copy) -> None:
        """Write what a move needs and has not got yet; this ps' own snapshots go on as if nothing had happened."""
        began_s = self._clock.monotonic()
        if order.move <= self._core.placement.version:
            return  # It is over.
        if order.freeze:
            self._core.freeze(order.move)
        cut = self._copies.cut(order.move)
        try:
            written = self._writer.write(self._core, cut, number=self._number, base=self._copies.base, copy=copy)
        finally:
            cut.close()
            self._number += 1
        self._copies.add(written.uri, cut)
        taken = SnapshotTaken(
            manifest=written.uri,
            request=order.request,
            ledgers=written.manifest.ledgers,
            size_bytes=written.size_bytes,
            seconds=self._clock.monotonic() - began_s,
            move=order.move,
        )
        self._taken[order.request] = taken
        self._untold = taken, order.cause
        self._log.info("copied", move=order.move, manifest=written.uri, size_bytes=taken.size_bytes)

    def _take(self, order: Order | None) -> None:
        began_s = self._clock.monotonic()
        if order and order.damaged:
            self._history.discard(order.damaged)
        written = self._write(flush=order is not None and order.flush)
        if written is None and order is None:
            self._plan_next()
            return
        uri, manifest = self._history.newest
        taken = SnapshotTaken(
            manifest=uri,
            request=order.request if order else 0,
            ledgers=manifest.ledgers,
            size_bytes=written.size_bytes if written else 0,
            seconds=self._clock.monotonic() - began_s,
        )
        if order:
            self._taken[order.request] = taken
        self._untold = taken, order.cause if order else ""
        self._log.info("snapshot taken", manifest=uri, step=manifest.step, size_bytes=taken.size_bytes)
        self._plan_next()

    def _tell(self) -> None:
        """Announce the snapshot that is not announced yet: it is registered, so it would not be taken again."""
        if self._untold is not None:
            taken, cause = self._untold
            self._publisher.publish(taken, cause=cause)
            self._untold = None

    def _write(self, *, flush: bool, extend: bool = False) -> Written | None:
        """Write and register a snapshot; None: the last one is still the present state."""
        following = next_cut(self._core, self._history, self._dropped_rows, flush=flush, extend=extend)
        if following is None:
            return None
        base, cut = following
        try:
            written = self._writer.write(self._core, cut, number=self._number, base=base)
            older = self._history.older_than(written.uri, written.manifest)
            self._registration.publish(written.uri, cut.step, older)
        except BaseException:
            cut.close()
            raise
        finally:
            self._number += 1
        cut.close(finished=True)
        self._dropped_rows = cut.dropped_rows
        self._history.add(written.uri, written.manifest)
        return written

    def _drop_rows(self) -> None:
        """Drop rows that have become somebody else's, little by little, until something else is due."""
        self._dropping = False
        while not self._stopping and not self._is_due():
            if not self._core.drop_some():
                return  # Done, or an evaluation is open: then later.
            with self._wake:
                self._wake.wait(_DROP_PAUSE_S)
        self._dropping = self._dropping or self._core.has_undropped

    def _delete_old(self) -> None:
        for uri, manifest in self._history.obsolete():
            try:
                delete_snapshot(self._store, uri, manifest)
            except (TransientError, PermanentError) as error:
                self._log.warning("an old snapshot was not deleted", manifest=uri, reason=str(error))
                return
            self._history.forget((uri, manifest))
        self._writer.remove_empty_folders()

    def _plan_next(self) -> None:
        self._planned += 1
        self._due_s = self._clock.monotonic() + self._policy.pause_s(self._planned)
        self._due_step = self._next_multiple(self._core.step)

    def _next_multiple(self, step: int) -> int:
        return (step // self._policy.steps + 1) * self._policy.steps if self._policy.steps else 0
