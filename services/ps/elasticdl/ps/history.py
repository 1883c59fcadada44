"""Which snapshots a ps has on storage, what the next one builds on, and which are not needed any more. Pure."""

from __future__ import annotations

from elasticdl.shared.manifests import Manifest

Snapshot = tuple[str, Manifest]
"""URI of the manifest, and what it says."""


class SnapshotHistory:
    """Complete snapshots that this life knows of, oldest first.

    Args:
        chain_max: snapshots that build on each other before the next one is full again.
        complete_kept: complete snapshots that are kept, with everything that they build on.
    """

    def __init__(self, *, chain_max: int, complete_kept: int) -> None:
        self._chain_max = chain_max
        self._complete_kept = complete_kept
        self._complete: list[Snapshot] = []
        self._chain = 0
        """Snapshots of the present chain; 0: the next one must be full."""

    def __bool__(self) -> bool:
        return bool(self._complete)

    @property
    def newest(self) -> Snapshot:
        """The last complete snapshot.

        Raises:
            IndexError: there is none.
        """
        return self._complete[-1]

    @property
    def manifests(self) -> list[str]:
        """URIs of all of them."""
        return [uri for uri, _ in self._complete]

    def adopt(self, chain: list[Snapshot]) -> None:
        """The state was restored from this chain. What this life writes first is full: it knows no dirty rows."""
        self._complete = list(chain)

    def base(self) -> str:
        """Manifest that the next snapshot adds changed rows to; empty: it has to be full."""
        return self.newest[0] if 0 < self._chain < self._chain_max else ""

    def add(self, uri: str, manifest: Manifest) -> None:
        """A snapshot is complete and registered."""
        self._chain = self._chain + 1 if manifest.base else 1
        self._complete.append((uri, manifest))

    def obsolete(self) -> list[Snapshot]:
        """What can be deleted. Whole chains only: what a kept snapshot builds on is kept."""
        bases = {uri: manifest.base for uri, manifest in self._complete}
        kept: set[str] = set()
        for newest, _ in self._complete[-self._complete_kept :]:
            needed = newest
            while needed and needed not in kept:
                kept.add(needed)
                needed = bases.get(needed, "")
        return [one for one in self._complete if one[0] not in kept]

    def forget(self, snapshot: Snapshot) -> None:
        """A snapshot was deleted."""
        self._complete.remove(snapshot)
