"""Snapshots that consist of other snapshots' objects: what a recipient registers while pushes wait. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from elasticdl.ps.snapshots.history import Snapshot
from elasticdl.shared.model.manifests import Chunk, ChunkPart, GroupState, Manifest, folder_of
from elasticdl.shared.names import PodName


def is_copy_for(manifest: str, ps: PodName) -> bool:
    """Whether the objects of a manifest belong to this ps, so that its snapshots may refer to them."""
    return manifest.split("/")[-3:-2] == [ps]


def referred(base: Snapshot | None, copies: Sequence[Snapshot], move: int) -> tuple[list[GroupState], list[Chunk]]:
    """What a snapshot consists of that refers to the last snapshot for served groups, and to copies for held ones.

    Args:
        base: this ps' last snapshot, which is built upon; None: it serves nothing.
        copies: those that ``base`` does not refer to yet, in the order in which they are to be loaded.

    Returns:
        Groups and chunks of the manifest.
    """
    groups: list[GroupState] = []
    chunks: list[Chunk] = []

    def take(snapshot: Snapshot, *, held: bool) -> None:
        uri, manifest = snapshot
        for number, group in enumerate(manifest.groups):
            if not held and group.move == move:
                continue  # It is from an earlier copy.
            chunks.extend(
                replace(chunk, of=chunk.of or uri, group=len(groups))
                for chunk in manifest.chunks
                if chunk.part is not ChunkPart.ROWS and chunk.group == number
            )
            groups.append(replace(group, move=move) if held else group)

    if base is not None:
        take(base, held=False)
    take(copies[-1], held=True)
    for uri, manifest in copies:
        chunks += [replace(chunk, of=uri) for chunk in manifest.chunks if chunk.part is ChunkPart.ROWS]
    return groups, chunks


def folders_of(uri: str, manifest: Manifest) -> set[str]:
    """The folders in which the objects of a snapshot are."""
    return {folder_of(uri), *(folder_of(chunk.of) for chunk in manifest.chunks if chunk.of)}
