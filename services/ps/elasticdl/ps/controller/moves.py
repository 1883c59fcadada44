"""How a group moves: the donor copies it, the recipient loads and registers it, and only then says that it holds it."""

from __future__ import annotations

from elasticdl.ps.controller import commands
from elasticdl.ps.controller.snapshots import Snapshots
from elasticdl.ps.moves import IncomingGroups, OutgoingCopies
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.snapshots.reader import check_belongs
from elasticdl.ps.snapshots.requests import CopyTarget, HoldRequest, SnapshotRequest
from elasticdl.shared.errors import ElasticDLError, FencedError, PermanentError, UserError
from elasticdl.shared.messages.events import GroupHeld, SnapshotTaken
from elasticdl.shared.model.manifests import rebuilding
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import PodName
from elasticdl.shared.process.procedures import Procedure


class Moves:
    """Copies for moves away from this ps, and groups that come to it. Errors as ``Snapshots``."""

    def __init__(self, core: PsCore, ps: PodName, snapshots: Snapshots) -> None:
        self._core = core
        self._snapshots = snapshots
        self._incoming = IncomingGroups(ps)
        self._outgoing = OutgoingCopies()

    def copy(self, request: SnapshotRequest, target: CopyTarget) -> Procedure[None]:
        """Copy what a move needs and no earlier copy contains. The snapshots of this ps do not depend on copies."""
        began_s = self._snapshots.now_s
        if request.move <= self._core.placement.version:
            return  # The move has ended.
        if request.freeze:
            yield commands.FreezePushes(move=request.move)
        self._outgoing.begin(request.move)
        cut = yield commands.CutCopy(since=self._outgoing.since)
        try:
            written = yield from self._snapshots.upload(cut, base=self._outgoing.base, copy=target)
        except ElasticDLError:
            yield commands.CloseCut(cut=cut, finished=False)
            raise
        yield commands.CloseCut(cut=cut, finished=False)
        self._outgoing.add(written.uri, cut)
        taken = SnapshotTaken(
            manifest=written.uri,
            request=request.request,
            ledgers=written.manifest.ledgers,
            size_bytes=written.size_bytes,
            seconds=self._snapshots.now_s - began_s,
            move=request.move,
        )
        self._snapshots.answer(taken, request)
        facts = {"move": request.move, "manifest": written.uri, "size_bytes": written.size_bytes}
        yield commands.Log(level="info", message="partitions copied", facts=facts)

    def hold(self, request: HoldRequest) -> Procedure[None]:
        """Load groups and register them. A copy that can't be loaded fails the move and not this ps.

        A repeated order gets the answer of the first one: by now, a later copy may be held.
        """
        held = self._incoming.answer_to(request)
        if held is None:
            try:
                held = yield from self._load(request)
            except FencedError:
                raise
            except (PermanentError, UserError, RefusedError) as error:
                held = GroupHeld(move=request.move, manifest=request.manifest, failure=str(error))
            if held is None:
                return  # The outcome of the move is known.
            if not held.failure:
                yield from self._register(request.move)
                self._incoming.answered(held)
        self._snapshots.announce_next(held, request.cause)
        facts = {"move": request.move, "manifest": request.manifest, "failure": held.failure}
        yield commands.Log(level="info", message="group held", facts=facts)

    def _load(self, request: HoldRequest) -> Procedure[GroupHeld | None]:
        chain = yield commands.ReadChain(uri=request.manifest)
        uri, last = chain[-1]
        check_belongs(self._core, uri, last)
        with rebuilding(uri):
            signature = ModelSignature.from_json(last.signature)
        prepare = commands.PrepareRows(
            signature=signature, move=request.move, partitions=request.partitions, manifest=uri
        )
        expected = yield prepare
        if not expected:
            return None
        self._incoming.begin(request, chain)
        if self._incoming.needs_snapshot(serves=self._core.serves):
            yield from self._snapshots.write(flush=False)
            self._snapshots.plan_next()
        load = self._incoming.load(self._core, request)
        while (yield commands.LoadNextObject(load=load)):
            pass
        self._incoming.loaded()
        return load.held

    def _register(self, move: int) -> Procedure[None]:
        """Register a snapshot that contains what is held; only what can't be referred to is written again."""
        incoming, snapshots = self._incoming, self._snapshots
        if not incoming.may_be_referred_to:
            yield from snapshots.write(flush=False, extend=True)
            return
        copies = incoming.unregistered
        if not copies:
            return
        if (yield from snapshots.forget_damaged()):
            yield from snapshots.write(flush=False)  # It can't refer to what was deleted, so it contains everything.
        else:
            base = incoming.base(snapshots.history, serves=self._core.serves)
            yield from snapshots.refer(base, copies, move)
        incoming.registered()
