"""Checks that the objects of kept snapshots are still on storage: a snapshot must not build on deleted objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.shared.model.manifests import DamagedError, Manifest, chunk_uri
from elasticdl.shared.storage import ObjectStore


def find_damages(store: ObjectStore, folder: str, snapshots: Iterable[Snapshot]) -> dict[str, DamagedError]:
    """Which snapshots can't be restored any more, as far as a listing shows: objects are gone or have another size.

    Args:
        snapshots: in the order in which they were taken.

    Returns:
        What is wrong, by manifest URI; a snapshot that builds on a damaged one has the same damage.
    """
    sizes = {info.uri: info.size_bytes for info in store.list(folder)}
    damages: dict[str, DamagedError] = {}
    for uri, manifest in snapshots:
        damage = damages.get(manifest.base) or next(_damages(sizes, uri, manifest), None)
        if damage is not None:
            damages[uri] = damage
    return damages


def _damages(sizes: dict[str, int], uri: str, manifest: Manifest) -> Iterator[DamagedError]:
    if uri not in sizes:
        yield DamagedError(uri, "is missing")
    for chunk in manifest.chunks:
        name = chunk_uri(chunk.of or uri, chunk.name)
        if name not in sizes:
            yield DamagedError(name, "is missing", snapshot=uri)
        elif sizes[name] != chunk.size_bytes:
            yield DamagedError(name, f"has {sizes[name]} bytes instead of {chunk.size_bytes}", snapshot=uri)
