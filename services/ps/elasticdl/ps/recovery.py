"""From what a ps' register names to a group: the newest snapshot of which every object is what was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from elasticdl.ps.core import PsCore
from elasticdl.ps.history import Snapshot
from elasticdl.ps.share import Share
from elasticdl.ps.snapshots import read_chain, restore
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.manifests import NOTHING_LEFT, DamagedError, Manifest, read_manifest
from elasticdl.shared.registers import PsRegister
from elasticdl.shared.storage import ObjectStore

_log = structlog.get_logger()


class NothingLeftError(PermanentError):
    """Every snapshot that was kept is damaged.

    Attributes:
        damages: what is wrong with them, each damaged object once.
    """

    def __init__(self, snapshots: int, damages: Sequence[DamagedError]) -> None:
        super().__init__(
            f"none of the {snapshots} snapshots that were kept can be restored: {damages[0]}. "
            f"{NOTHING_LEFT}; train anew."
        )
        self.damages = tuple(damages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What a ps goes on from.

    Attributes:
        share: the state, not installed yet.
        kept: the snapshots that are still good for something, oldest first; the last one is that of ``share``.
        damages: what is wrong with newer ones, each damaged object once.
    """

    share: Share
    kept: Sequence[Snapshot]
    damages: tuple[DamagedError, ...] = ()

    @property
    def uri(self) -> str:
        """Manifest of the snapshot that was restored."""
        return self.kept[-1][0]


def recover(store: ObjectStore, core: PsCore, register: PsRegister) -> Recovered:
    """Restore the registered snapshot or, if it is damaged, the newest of the others that are kept and are not.

    A damaged snapshot makes those that build on it useless, and leaves those that it builds on. What the older one
    lacks says its ledger, so it is dispatched anew and recomputed; nothing is lost but time.

    Args:
        store: where the snapshots are.
        core: makes the share.
        register: names them.

    Raises:
        TransientError: the store is away.
        NothingLeftError: all of them are damaged; the first object is named.
        UserError: the snapshots belong to another plan.
    """
    uris = [register.manifest, *register.older]
    damages: dict[str, DamagedError] = {}
    for uri in uris:  # grows below
        try:
            chain = read_chain(store, uri)
        except DamagedError as error:
            damages.setdefault(error.snapshot, error)
            continue
        uris += [one for one, _ in reversed(chain) if one not in uris]
        if any(one in damages for one, _ in chain):
            continue
        try:
            share = restore(store, core, chain)
        except DamagedError as error:
            damages[error.snapshot] = error
            continue
        if not share.covers(core.owned):
            continue  # It is from before a group came here, or went.
        others = uris[uris.index(uri) + 1 :]
        return Recovered(share=share, kept=_readable(store, others, damages, chain), damages=tuple(damages.values()))
    if not damages:
        raise PermanentError("no snapshot of this ps has all partitions that the placement gives to it")
    raise NothingLeftError(len(uris), list(damages.values()))


def _readable(
    store: ObjectStore, others: Sequence[str], damages: dict[str, DamagedError], chain: Sequence[Snapshot]
) -> list[Snapshot]:
    """A restored chain and older snapshots whose manifests can be read, in the order in which they were taken."""
    known = dict(chain)
    for uri in others:
        if uri in known or uri in damages:
            continue
        try:
            known[uri] = read_manifest(store, uri)
        except DamagedError as error:
            _log.warning("an older snapshot is damaged", reason=str(error))
    kept: dict[str, Manifest] = {}
    for uri in (*reversed(others), chain[-1][0]):
        if uri in known and (not known[uri].base or known[uri].base in kept):
            kept[uri] = known[uri]
    return list(kept.items())
