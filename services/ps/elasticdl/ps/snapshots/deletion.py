"""Removes snapshots that nothing needs any more, and objects that a former process of the ps left behind."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.ps.snapshots.references import folders_of
from elasticdl.shared.model.manifests import Manifest, chunk_uri
from elasticdl.shared.storage import ObjectStore


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
