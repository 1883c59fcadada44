"""Restores a shard from the newest snapshot in the register of a ps whose objects are all undamaged.

Right after a move, only one snapshot of the recipient may contain the moved partitions. If it is damaged, each
partition is taken from another place: the copies of the move, older snapshots, or snapshots of the ps that owned it
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.regrouping import common, union, without
from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.reader import gather, restore
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.messages.registers import PsRegister
from elasticdl.shared.model.manifests import (
    COPY_NAME,
    MANIFEST_NAME,
    NOTHING_LEFT,
    DamagedError,
    Manifest,
    manifest_uris,
    read_manifest,
)
from elasticdl.shared.model.placement import Ranges
from elasticdl.shared.model.rows.snapshot_rows import Chain, read_chain
from elasticdl.shared.names import SERVED_REPLICA, pod_number
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.storage import ObjectStore

_log = get_logger()


class NothingLeftError(PermanentError):
    """Every snapshot that was kept is damaged; ``damages``: what is wrong with them, each damaged object once."""

    def __init__(self, snapshots: int, damages: Sequence[DamagedError]) -> None:
        super().__init__(
            f"none of the {snapshots} snapshots that were kept can be restored: {damages[0]}. "
            f"{NOTHING_LEFT}. Start a new job."
        )
        self.damages = tuple(damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The state that a ps starts from.

    Attributes:
        shard: the state, not installed yet; None: what was held for a move is lost, and nothing else is needed here.
        kept: the snapshots that are still good for something, oldest first.
        uri: manifest of the restored snapshot, the last of ``kept``; empty: none was restored, so a shard that was
            gathered from several has to be saved before this incarnation announces it.
        damages: what is wrong with newer snapshots, each damaged object once.
    """

    shard: ModelShard | None
    kept: Sequence[Snapshot]
    uri: str
    damages: tuple[DamagedError, ...] = ()


def recover(store: ObjectStore, core: PsCore, register: PsRegister, folder: str) -> Recovered:
    """Restore the registered snapshot or, if it is damaged, the newest of the others that are kept and are not.

    A damaged snapshot makes those that build on it useless, and leaves those that it builds on. What the older one
    lacks is known from its ledger, so the master dispatches it again. Nothing but time is lost.

    Raises:
        NothingLeftError: there is a partition that is in damaged ones only; the first object is named.
        UserError: the snapshots belong to another plan.
    """
    uris = [register.manifest, *register.older]
    damages: dict[str, DamagedError] = {}
    for uri in uris:  # The loop appends to it.
        try:
            chain = read_chain(store, uri)
        except DamagedError as error:
            damages.setdefault(error.snapshot, error)
            continue
        uris += [one for one, _ in reversed(chain) if one not in uris]
        if any(one in damages for one, _ in chain):
            continue
        if without(core.owned, union([group.partitions for group in chain[-1][1].groups])):
            continue  # It is from before a group came here, or went.
        try:
            shard = restore(store, core, chain)
        except DamagedError as error:
            damages[error.snapshot] = error
            continue
        older = uris[uris.index(uri) + 1 :]
        kept = _readable(store, [uri, *older], damages, chain)
        return Recovered(shard=shard, kept=kept, uri=uri, damages=tuple(damages.values()))
    gathered = _gathered(store, core, uris, folder)
    if gathered is not None or not core.owned:
        kept = _readable(store, uris, damages, ()) if gathered else []
        return Recovered(shard=gathered, kept=kept, uri="", damages=tuple(damages.values()))
    if not damages:
        raise PermanentError("no snapshot of this ps has all partitions that the placement gives to it")
    raise NothingLeftError(len(uris), list(damages.values()))


def read_history(store: ObjectStore, register: PsRegister) -> list[Snapshot]:
    """The snapshots that a register names and whose manifests can be read, oldest first."""
    return _readable(store, [register.manifest, *register.older], {}, ())


def _gathered(store: ObjectStore, core: PsCore, registered: Sequence[str], folder: str) -> ModelShard | None:
    """A shard of everything that the placement gives to this ps, from any snapshot; None: no snapshot has some of it.

    In each snapshot and in each copy, registered or not, weights and ledger of a partition are of one moment, so
    training can continue from each of them.
    """
    found = manifest_uris(store, folder, MANIFEST_NAME, COPY_NAME)
    chains: list[Chain] = []
    for uri in dict.fromkeys([*registered, *found]):
        try:
            chains.append(read_chain(store, uri))
        except DamagedError as error:
            _log.warning("a snapshot can't be used", reason=str(error))
    if core.policy.follows_ring:  # The replica has the dense variables, the other ps the tables.
        is_replica = core.number == pod_number(SERVED_REPLICA)
        chains = [chain for chain in chains if (chain[-1][1].ps == SERVED_REPLICA) == is_replica]
    while parts := choose(chains, core.owned):
        try:
            return gather(store, core, parts)
        except DamagedError as error:
            _log.warning("a snapshot can't be used", reason=str(error))
            chains = [chain for chain in chains if error.snapshot not in dict(chain)]
    return None


def choose(chains: Sequence[Chain], wanted: Ranges) -> list[tuple[Chain, Ranges]]:
    """Which partitions to take from which snapshots: each from the group with it that has absorbed the most batches.

    Args:
        chains: what there is, from the best to the worst of equals.

    Returns:
        Chains with what is to be taken from them; nothing: there is a partition that none of them has.
    """
    groups = [(number, group) for number, chain in enumerate(chains) for group in chain[-1][1].groups]
    taken: dict[int, Ranges] = {}
    for number, group in sorted(groups, key=lambda one: -one[1].ledger.step):
        part = common(group.partitions, wanted)
        wanted = without(wanted, part)
        if part:
            taken[number] = union([taken.get(number, ()), part])
    return [] if wanted else [(chains[number], part) for number, part in sorted(taken.items())]


def _readable(
    store: ObjectStore, uris: Sequence[str], damages: dict[str, DamagedError], chain: Sequence[Snapshot]
) -> list[Snapshot]:
    """Those of some snapshots whose manifests can be read, in the order in which they were taken."""
    known = dict(chain)
    for uri in uris:
        if uri in known or uri in damages:
            continue
        try:
            known[uri] = read_manifest(store, uri)
        except DamagedError as error:
            _log.warning("an older snapshot is damaged", reason=str(error))
    kept: dict[str, Manifest] = {}
    for uri in reversed(uris):
        if uri in known and (not known[uri].base or known[uri].base in kept):
            kept[uri] = known[uri]
    return list(kept.items())
