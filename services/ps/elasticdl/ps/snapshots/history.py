"""Retention: which snapshots a ps has on storage, what the next one builds on, and which are obsolete. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.model.manifests import Manifest

Snapshot = tuple[str, Manifest]
"""URI of the manifest, and the manifest."""


class SnapshotHistory:
    """The complete snapshots that this incarnation knows of, oldest first.

    Args:
        chain_max: snapshots that build on each other before the next one is full again.
        chains_kept: chains that are kept whole, so that an earlier one can replace a damaged one.
            Snapshot 0, which is small because no row was learned yet, is also kept, until the job ends.
    """

    def __init__(self, *, chain_max: int, chains_kept: int) -> None:
        self._chain_max = chain_max
        self._chains_kept = chains_kept
        self._complete: tuple[Snapshot, ...] = ()
        self._obsolete: tuple[Snapshot, ...] = ()
        self._chain = 0
        """Number of snapshots in the present chain; 0: the next one must be full."""

    def __bool__(self) -> bool:
        return bool(self._complete)

    @property
    def newest(self) -> Snapshot:
        """The last complete snapshot. Raises ``IndexError``: no snapshot is kept."""
        return self._complete[-1]

    @property
    def snapshots(self) -> list[Snapshot]:
        """All of them."""
        return list(self._complete)

    def adopt(self, kept: Sequence[Snapshot]) -> None:
        """The state was restored from the last of these; the next one is full, because no row is known to be dirty."""
        self._set(kept)

    def base(self, *, extend: bool = False) -> str:
        """Manifest that the next snapshot adds changed rows to; empty: it has to be full.

        Args:
            extend: a move waits for it, so let the chain grow beyond its usual length.
        """
        return self.newest[0] if 0 < self._chain < self._chain_max or (extend and self._chain) else ""

    def add(self, uri: str, manifest: Manifest) -> None:
        """A snapshot is complete and registered."""
        if not manifest.base:
            self._chain = 1
        elif self._chain:
            self._chain += 1  # Else it only refers to others, and the next one has to be full as before.
        self._set([*self._complete, (uri, manifest)])

    def discard(self, uri: str) -> None:
        """Forget a damaged snapshot and the ones that build on it. The next snapshot is full."""
        lost = {uri}
        for one, manifest in self._complete:
            if manifest.base in lost:
                lost.add(one)
        self._set([snapshot for snapshot in self._complete if snapshot[0] not in lost])
        self._chain = 0

    def older_than(self, uri: str, manifest: Manifest) -> tuple[str, ...]:
        """Manifest URIs that stay kept beside a new snapshot, newest first: its replacements if it is damaged."""
        kept = _kept([*self._complete, (uri, manifest)], self._chains_kept)
        return tuple(one for one, _ in reversed(kept) if one != uri)

    def obsolete(self) -> tuple[Snapshot, ...]:
        """The snapshots that can be deleted: whole chains only."""
        return self._obsolete

    def forget(self, snapshot: Snapshot) -> None:
        """A snapshot was deleted."""
        self._set([one for one in self._complete if one != snapshot])

    def _set(self, complete: Sequence[Snapshot]) -> None:
        self._complete = tuple(complete)
        kept = {uri for uri, _ in _kept(complete, self._chains_kept)}
        self._obsolete = tuple(one for one in complete if one[0] not in kept)


def _kept(complete: Sequence[Snapshot], chains_kept: int) -> list[Snapshot]:
    """The last chains, and the initial weights."""
    chains: dict[str, list[Snapshot]] = {}
    first_of: dict[str, str] = {}
    for uri, manifest in complete:
        first_of[uri] = first_of.get(manifest.base, uri) if manifest.base else uri
        chains.setdefault(first_of[uri], []).append((uri, manifest))
    last = set(list(chains)[-chains_kept:])
    return [
        (uri, manifest)
        for uri, manifest in complete
        if first_of[uri] in last or (not manifest.base and manifest.step == 0)
    ]
