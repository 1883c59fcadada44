"""How a snapshot is taken: cut, written, registered and announced. Only then are older ones deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.ps.controller import commands
from elasticdl.ps.controller.registration import Registration
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import Snapshot, SnapshotHistory
from elasticdl.ps.snapshots.next_cut import NextCut
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.requests import CopyTarget, SnapshotRequest
from elasticdl.ps.snapshots.uploads import Written
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.errors import ElasticDLError, FencedError, InvariantError, PermanentError, TransientError
from elasticdl.shared.messages.events import GroupHeld, ModelInitialised, SnapshotTaken
from elasticdl.shared.messages.measurements import TableCounted
from elasticdl.shared.model.manifests import DamagedError, damage, decode_manifest
from elasticdl.shared.process.procedures import Procedure

COUNT_PAUSE_FACTOR = 200
"""A count is followed by a pause this many times as long as it took, because pushes wait while rows are counted."""
_NEVER = 1 << 62


class Snapshots:
    """The snapshots of one incarnation of a ps. Its procedures must run one at a time.

    They raise TransientError when the broker or the store is unreachable (the caller tries again), and FencedError when
    another incarnation has taken the name over.
    """

    def __init__(
        self, core: PsCore, registration: Registration, writer: SnapshotWriter, policy: SnapshotPolicy
    ) -> None:
        self._core = core
        self._registration = registration
        self._writer = writer
        self.policy = policy
        self.history = SnapshotHistory(chain_max=policy.chain_max, chains_kept=policy.chains_kept)
        self.now_s = 0.0
        """Monotonic time of the present event."""
        self.initialised = False
        """Whether a snapshot is registered, or this ps needs none because it only receives groups."""
        self.due_s = 0.0
        """When the timer asks for the next snapshot."""
        self.due_step = _NEVER
        """The step at which the next snapshot is due."""
        self.notify_step = _NEVER
        """The first step that the shell has to report; push threads read it."""
        self.answers: dict[int, SnapshotTaken] = {}
        """What was taken for each request: a repeated request gets the same answer."""
        self._unannounced: tuple[SnapshotTaken | GroupHeld, str] | None = None
        self._damages: list[DamagedError] = []
        """What was found to be wrong with kept snapshots and is not on the log yet."""
        self._counted: list[TableCounted] = []
        """What a snapshot contains of each table and the log does not contain yet."""
        self._count_due_s = 0.0
        """When a snapshot of the policy counts again; ordered ones always do."""
        self._dropped_rows = 0
        self._number = 0
        self._planned = 0

    @property
    def has_unannounced(self) -> bool:
        """Whether something is registered that the log does not contain yet."""
        return self._unannounced is not None or bool(self._damages)

    def adopt(self, kept: Sequence[Snapshot]) -> None:
        """The core was restored from the last of these snapshots, or its first snapshot follows at once."""
        self.history.adopt(kept)
        self.initialised = True

    def plan_next(self) -> None:
        """Plan the next snapshot, by time and by steps."""
        self.due_s = self.now_s + self.policy.pause_s(self._planned)
        self.due_step = self.policy.next_step(self._core.step) or _NEVER
        self.notify_step = self.due_step
        self._planned += 1

    def on_step(self, step: int) -> None:
        """A batch was absorbed; one report is enough until the next snapshot is planned."""
        if step >= self.due_step:
            self.notify_step = _NEVER

    def is_due(self, now_s: float) -> bool:
        """Whether the policy asks for a snapshot now. Call it only if there is a model to save."""
        # While pushes wait for a move nothing changes, and the recipient needs disk and processor.
        by_time = self.policy.interval_s > 0 and now_s >= self.due_s and not self._core.frozen
        return by_time or self._core.step >= self.due_step

    # --- procedures ---------------------------------------------------------------------------------------------------

    def take_first(self) -> Procedure[None]:
        """Register the initial weights, and serve them."""
        shard = self._core.shard
        if shard is None:
            raise InvariantError("there is no model to take the first snapshot of")
        yield from self.take(None)
        yield from self.announce()
        warm, self._core.warm_start = self._core.warm_start, None
        note = warm.note(shard.signature) if warm else ""
        yield commands.PublishEvent(
            event=ModelInitialised(signature=shard.signature.digest(), parameters=shard.part.size, note=note)
        )
        self.initialised = True
        yield commands.StartServing()

    def take(self, request: SnapshotRequest | None) -> Procedure[None]:
        """Take and register a snapshot, without ``request`` for the policy; ``announce`` has to follow."""
        began_s = self.now_s
        if request and request.damaged:
            self.history.discard(request.damaged)
        written = yield from self.write(flush=request is not None and request.flush)
        is_due = written is not None and self.initialised and self.now_s >= self._count_due_s
        if self._has_tracked_tables() and (request is not None or is_due):
            yield from self._count()
        self.plan_next()
        if written is None and request is None:
            return
        uri, manifest = self.history.newest
        taken = SnapshotTaken(
            manifest=uri,
            request=request.request if request else 0,
            ledgers=manifest.ledgers,
            size_bytes=written.size_bytes if written else 0,
            seconds=self.now_s - began_s,
        )
        self.answer(taken, request)
        yield commands.Log(
            level="info",
            message="snapshot taken",
            facts={"manifest": uri, "step": manifest.step, "size_bytes": taken.size_bytes},
        )

    def _has_tracked_tables(self) -> bool:
        shard = self._core.shard
        return shard is not None and any(table.is_tracked for table in shard.signature.tables)

    def _count(self) -> Procedure[None]:
        """Count the rows of tables, while pushes wait; ``announce`` has to follow."""
        began_s = self.now_s
        self._counted = list((yield commands.CountTables()))
        self._count_due_s = self.now_s + COUNT_PAUSE_FACTOR * (self.now_s - began_s)

    def answer(self, taken: SnapshotTaken, request: SnapshotRequest | None) -> None:
        """Announce a snapshot or copy next, and give the same answer if the request is repeated."""
        if request:
            self.answers[request.request] = taken
        self.announce_next(taken, request.cause if request else "")

    def announce_next(self, event: SnapshotTaken | GroupHeld, cause: str) -> None:
        """Have ``announce`` publish this event."""
        self._unannounced = event, cause

    def announce(self) -> Procedure[None]:
        """Publish what is not on the log yet: damages, counts of rows, and the event about what is registered."""
        while self._damages:
            instead = self.history.newest[0] if self.history else ""
            yield commands.PublishEvent(event=damage(self._writer.ps, self._damages[0], instead))
            del self._damages[0]
        while self._counted:
            yield commands.PublishEvent(event=self._counted[0])
            del self._counted[0]
        if self._unannounced is not None:
            event, cause = self._unannounced
            yield commands.PublishEvent(event=event, cause=cause)
            self._unannounced = None

    def write(self, *, flush: bool, extend: bool = False) -> Procedure[Written | None]:
        """Write and register a snapshot. Returns the snapshot; None: nothing has changed since the last one."""
        base = self.history.base(extend=extend)
        kept = self.history.snapshots
        following: NextCut = yield commands.CutSnapshot(
            kept=kept, base=base, dropped_rows=self._dropped_rows, flush=flush, spec=self._writer.stored_spec
        )
        yield from self._forget(following.damages)
        cut = following.cut
        if cut is None:
            return None
        try:
            written = yield from self.upload(cut, base=following.base)
            older = self.history.older_than(written.uri, written.manifest)
            yield from self._registration.publish(written.uri, cut.step, older)
        except ElasticDLError:
            yield commands.CloseCut(cut=cut, finished=False)
            raise
        yield commands.CloseCut(cut=cut, finished=True)
        self._dropped_rows = cut.dropped_rows
        self.history.add(written.uri, written.manifest)
        return written

    def forget_damaged(self) -> Procedure[bool]:
        """Forget kept snapshots whose objects were deleted; returns whether there are any."""
        damages = yield commands.FindDamages(kept=self.history.snapshots)
        yield from self._forget(damages)
        return bool(damages)

    def _forget(self, damages: Mapping[str, DamagedError]) -> Procedure[None]:
        """Forget snapshots whose objects were deleted or damaged while the job runs."""
        for uri, error in damages.items():
            self.history.discard(uri)
            if error not in self._damages:
                self._damages.append(error)
                facts = {"reason": str(error)}
                message = "A kept snapshot is damaged. This ps no longer uses it or the snapshots that build on it."
                yield commands.Log(level="error", message=message, facts=facts)

    def upload(self, cut: ShardCut, *, base: str, copy: CopyTarget | None = None) -> Procedure[Written]:
        """Write the objects of a cut; arguments as ``SnapshotWriter.upload``."""
        upload = self._writer.upload(self._core, cut, number=self._next_number(), base=base, copy=copy)
        while (yield commands.WriteNextObject(upload=upload)):
            pass
        if upload.written is None:
            raise InvariantError("an upload ended without a manifest")
        return upload.written

    def refer(self, base: Snapshot | None, copies: Sequence[Snapshot], move: int) -> Procedure[None]:
        """Register a snapshot that refers to copies; arguments as ``references.referred``."""
        number = self._next_number()
        uri, data = self._writer.reference(self._core, base, copies, number=number, move=move)
        yield commands.WriteObject(uri=uri, data=data)
        manifest = decode_manifest(data, uri)
        yield from self._registration.publish(uri, manifest.step, self.history.older_than(uri, manifest))
        self.history.add(uri, manifest)

    def delete_obsolete(self) -> Procedure[None]:
        """Delete the snapshots that retention does not keep. What can't be deleted now is tried again later."""
        for uri, manifest in self.history.obsolete():
            try:
                yield commands.DeleteSnapshot(uri=uri, manifest=manifest)
            except (TransientError, PermanentError) as error:
                facts = {"manifest": uri, "reason": str(error)}
                yield commands.Log(level="warning", message="an old snapshot was not deleted", facts=facts)
                return
            self.history.forget((uri, manifest))

    def delete_garbage(self) -> Procedure[None]:
        """Delete what former incarnations left. Only the snapshots of the history are needed."""
        try:
            garbage = yield commands.ListGarbage(kept=self.history.snapshots)
            # The objects of a successor look like garbage, too. If this incarnation still owns the name, none of these
            # objects belongs to a successor.
            yield from self._registration.confirm()
            yield commands.DeleteObjects(uris=garbage)
        except FencedError:
            raise
        except (TransientError, PermanentError) as error:
            facts = {"reason": str(error)}
            yield commands.Log(level="warning", message="garbage of former processes was not deleted", facts=facts)
            return
        yield commands.Log(
            level="debug", message="garbage of former processes deleted", facts={"objects": len(garbage)}
        )

    def _next_number(self) -> int:
        self._number += 1
        return self._number - 1

    def check(self) -> None:
        """Verify the invariants of this part of the controller."""
        register = self._registration.register
        for uri, _ in self.history.obsolete():
            if register and uri in (register.manifest, *register.older):
                raise InvariantError(f"{uri} is registered and about to be deleted")
        for request, taken in self.answers.items():
            if taken.request != request:
                raise InvariantError(f"request {request} was answered with the snapshot of request {taken.request}")
