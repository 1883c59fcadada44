"""The objects of snapshots on storage: whether all of kept ones are still there, and removal of what nothing needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.references import folders_of
from elasticdl.shared.model.manifests import DamagedError, Manifest, chunk_uri
from elasticdl.shared.storage import ObjectStore


def find_damages(store: ObjectStore, folder: str, snapshots: Iterable[Snapshot]) -> dict[str, DamagedError]:
    """Which snapshots can't be restored any more, as far as a listing shows: objects are gone or have another size.

    A new snapshot must not build on these.

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


def garbage(store: ObjectStore, folder: str, kept: Collection[Snapshot]) -> list[str]:
    """What other incarnations left in a ps' folder: half-written snapshots, and complete ones that nothing needs."""
    folders = tuple({folder for snapshot in kept for folder in folders_of(*snapshot)})
    return [info.uri for info in store.list(folder) if not info.uri.startswith(folders)]


def delete_objects(store: ObjectStore, uris: Iterable[str]) -> None:
    """Remove objects. After an error of the store the objects that are left are garbage."""
    for uri in uris:
        store.delete(uri)


def delete_snapshot(store: ObjectStore, uri: str, manifest: Manifest) -> None:
    """Remove a snapshot that no other one builds on, its manifest first, and the copies that it refers to.

    Other snapshots that refer to the same copies belong to the same chain, which is removed as a whole.

    Raises:
        TransientError, PermanentError: the store failed; the objects that are left are garbage.
    """
    store.delete(uri)
    for chunk in manifest.chunks:
        store.delete(chunk_uri(chunk.of or uri, chunk.name))
    for copy in {chunk.of for chunk in manifest.chunks if chunk.of}:
        store.delete(copy)
