"""Groups on their way here: read from the donor's snapshots, loaded beside what is served, and held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.regrouping import common, reduced
from elasticdl.ps.snapshots.history import Snapshot, SnapshotHistory
from elasticdl.ps.snapshots.reader import check_belongs, read_chain, read_groups, read_rows
from elasticdl.ps.snapshots.references import is_copy_for
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages.events import GroupHeld
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldOrder:
    """Partitions that are to be held.

    Attributes:
        move: number of the move.
        partitions: which.
        manifest: URI of the donor's snapshot.
        cause: id of what asked, for the log.
    """

    move: int
    partitions: Ranges
    manifest: str
    cause: str


class Holder:
    """Loads what a move needs: ``begin``, ``load``, then a snapshot is registered, ``registered``.

    A second copy by the same donor adds what the first one lacked.

    Args:
        core: which holds it.
        store: where the copies are.
        ps: who this is.
    """

    def __init__(self, core: PsCore, store: ObjectStore, ps: PodName) -> None:
        self._core = core
        self._store = store
        self._ps = ps
        self._move = 0
        self._chain: list[Snapshot] = []
        self._loaded: set[str] = set()
        self._registered: set[str] = set()

    def begin(self, order: HoldOrder) -> bool:
        """Look at what is to be loaded, and get ready.

        Returns:
            False: the outcome of the move is known already.

        Raises:
            TransientError: the store is away.
            DamagedError: an object of the snapshot is missing or damaged.
            UserError, RefusedError: the snapshot is of another plan or model.
        """
        self._chain = read_chain(self._store, order.manifest)
        uri, last = self._chain[-1]
        check_belongs(self._core, uri, last)
        if not self._core.await_rows(ModelSignature.from_json(last.signature), order.move, order.partitions):
            return False
        if self._move != order.move:
            self._move, self._loaded, self._registered = order.move, set(), set()
        return True

    @property
    def wants_snapshot(self) -> bool:
        """Whether what is served has to be saved first, so that what is registered later only refers to it."""
        return not self._registered and self._core.serves and self.may_be_referred_to

    def base(self, history: SnapshotHistory) -> Snapshot | None:
        """What a snapshot with what is held builds on; None: nothing is served, nothing registered for this move."""
        return history.newest if self._core.serves or self._registered else None

    @property
    def unregistered(self) -> list[Snapshot]:
        """The copies that no registered snapshot refers to."""
        return [snapshot for snapshot in self._chain if snapshot[0] not in self._registered]

    @property
    def may_be_referred_to(self) -> bool:
        """Whether the copies belong to this ps; else what is held has to be written."""
        return is_copy_for(self._chain[-1][0], self._ps)

    def registered(self) -> None:
        """A snapshot has everything in it that is held."""
        self._registered.update(one for one, _ in self._chain)

    def load(self, order: HoldOrder) -> GroupHeld | None:
        """Load and hold; what is left to do is to register a snapshot, and to say so.

        Returns:
            What is to be said; None: the outcome of the move is known already.

        Raises:
            TransientError: the store is away.
            DamagedError: an object of the snapshot is missing or damaged.
        """
        *_, held = self.steps(order)
        return held

    def steps(self, order: HoldOrder) -> Iterator[GroupHeld | None]:
        """``load``, pausing after each object that was read; the last step gives what ``load`` returns."""
        chain = self._chain
        missing = [(one, manifest) for one, manifest in chain if one not in self._loaded]
        for _, table, ids, slabs in read_rows(self._store, missing, order.partitions):
            self._core.hold_rows(order.move, table, ids, slabs, saved=self.may_be_referred_to)
            yield None
        cuts = []
        shard = self._core.shard
        if shard is None:
            raise InvariantError("rows were loaded without a shard")
        for cut in read_groups(self._store, shard, chain[-1]):
            partitions = common(cut.partitions, order.partitions)
            if partitions:
                cuts.append(reduced(cut, partitions, shard.signature.dense))
        ledgers = self._core.hold(order.move, cuts)
        self._loaded.update(one for one, _ in chain)
        yield GroupHeld(move=order.move, manifest=order.manifest, ledgers=ledgers) if ledgers else None
