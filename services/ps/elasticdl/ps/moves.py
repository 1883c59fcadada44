"""Moving groups between parameter servers: the donor copies them, the recipient loads and holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.regrouping import common, reduced, union, without
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import Snapshot, SnapshotHistory
from elasticdl.ps.snapshots.reader import read_groups
from elasticdl.ps.snapshots.references import is_copy_for
from elasticdl.ps.snapshots.requests import HoldRequest
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages.events import GroupHeld
from elasticdl.shared.model.manifests import DamagedError, rebuilding
from elasticdl.shared.model.rows.snapshot_rows import read_rows
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import ObjectStore


class OutgoingCopies:
    """The copies of one move that a donor made so far: each contains what changed since the one before.

    They are independent of the snapshots of the donor: neither relies on the other.
    """

    def __init__(self) -> None:
        self._move = 0
        self.base = ""
        """Manifest URI of the last copy; empty: the next copy is the first one."""
        self.since: Sequence[int] = ()
        """``ShardCut.generations`` of the last copy: the next one contains the rows that changed after it."""

    def begin(self, move: int) -> None:
        """Prepare the next copy; the first copy of another move starts over."""
        if move != self._move:
            self._move, self.since, self.base = move, (), ""

    def add(self, uri: str, cut: ShardCut) -> None:
        """A copy is complete."""
        self.base, self.since = uri, cut.generations


class GroupLoad:
    """Loads the copies of one request beside the groups that this ps serves, one object per call. Not thread-safe.

    Args:
        chain: the donor's snapshot or copy and everything that it builds on, the full one first.
        missing: manifest URIs of the parts of the chain whose rows are not loaded yet.
        saved: the rows count as saved, because the copies belong to this ps.
    """

    def __init__(
        self, core: PsCore, request: HoldRequest, chain: Sequence[Snapshot], missing: Collection[str], *, saved: bool
    ) -> None:
        self._core = core
        self._request = request
        self._chain = chain
        self._missing = missing
        self._saved = saved
        self._steps: Iterator[None] | None = None
        self.held: GroupHeld | None = None
        """The outcome once nothing more follows; None: the outcome of the move was known before the load ended."""

    def load_next(self, store: ObjectStore) -> bool:
        """Read and load one object.

        Returns:
            Whether more objects follow.

        Raises:
            DamagedError: an object of the snapshot is missing or damaged.
        """
        if self._steps is None:
            if self._core.shard is None:
                raise InvariantError("rows are loaded without a shard")
            self._steps = self._load(store, self._core.shard)
        return next(self._steps, self) is None

    def _load(self, store: ObjectStore, shard: ModelShard) -> Iterator[None]:
        core, request, chain = self._core, self._request, self._chain
        last, _ = chain[-1]
        missing = [(uri, manifest) for uri, manifest in chain if uri in self._missing]
        with rebuilding(last):
            for uri, table, ids, slabs in read_rows(store, missing, request.partitions):
                with rebuilding(uri):
                    core.hold_rows(request.move, table, ids, slabs, saved=self._saved)
                yield None
            cuts = []
            for cut in read_groups(store, shard, chain[-1]):
                partitions = common(cut.partitions, request.partitions)
                if partitions:
                    cuts.append(reduced(cut, partitions, shard.signature.dense))
            if lacking := without(request.partitions, union([cut.partitions for cut in cuts])):
                raise DamagedError(last, f"lacks the partitions {list(lacking)}")
            ledgers = core.hold(request.move, cuts)
        if ledgers:
            self.held = GroupHeld(move=request.move, manifest=request.manifest, ledgers=ledgers)


class IncomingGroups:
    """The move whose groups are held or about to be: ``begin``, ``load``, ``loaded``, then ``registered``.

    A second copy of the same donor adds what the first one lacked.
    """

    def __init__(self, ps: PodName) -> None:
        self._ps = ps
        self._move = 0
        self._chain: Sequence[Snapshot] = ()
        self._loaded: set[str] = set()
        self._registered: set[str] = set()
        self._answers: dict[str, GroupHeld] = {}

    def answer_to(self, request: HoldRequest) -> GroupHeld | None:
        """The answer to an earlier, equal order; None if there was none."""
        return self._answers.get(request.manifest) if self._move == request.move else None

    def answered(self, held: GroupHeld) -> None:
        """Remember the answer for a copy whose groups are held and registered."""
        self._answers[held.manifest] = held

    def begin(self, request: HoldRequest, chain: Sequence[Snapshot]) -> None:
        """Prepare the load of a chain, the full snapshot or copy first; another move starts over."""
        self._chain = chain
        if self._move != request.move:
            self._move, self._loaded, self._registered, self._answers = request.move, set(), set(), {}

    def load(self, core: PsCore, request: HoldRequest) -> GroupLoad:
        """The load of what the core lacks; it does nothing before its first call."""
        missing = {uri for uri, _ in self._chain} - self._loaded
        return GroupLoad(core, request, self._chain, missing, saved=self.may_be_referred_to)

    def loaded(self) -> None:
        """The load ended and the groups are held."""
        self._loaded.update(uri for uri, _ in self._chain)

    def registered(self) -> None:
        """A registered snapshot contains everything that is held."""
        self._registered.update(uri for uri, _ in self._chain)

    @property
    def may_be_referred_to(self) -> bool:
        """Whether the copies belong to this ps; otherwise its own snapshot has to contain what is held."""
        return is_copy_for(self._chain[-1][0], self._ps)

    @property
    def unregistered(self) -> list[Snapshot]:
        """The copies that no registered snapshot refers to."""
        return [snapshot for snapshot in self._chain if snapshot[0] not in self._registered]

    def needs_snapshot(self, *, serves: bool) -> bool:
        """Whether the served groups have to be saved first: a snapshot that is registered later refers only to them."""
        return serves and self.may_be_referred_to and not self._registered

    def base(self, history: SnapshotHistory, *, serves: bool) -> Snapshot | None:
        """The snapshot to build on; None: nothing is served, and nothing is registered for this move."""
        return history.newest if serves or self._registered else None
