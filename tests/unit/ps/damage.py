"""Three ways to damage an object in a store."""

from __future__ import annotations

from elasticdl.shared.storage import MemoryStore


def flip(store: MemoryStore, uri: str) -> None:
    data = bytearray(store.read(uri))
    data[len(data) // 2] ^= 1
    store.write(uri, bytes(data))


def truncate(store: MemoryStore, uri: str) -> None:
    store.write(uri, store.read(uri)[:-1])


def delete(store: MemoryStore, uri: str) -> None:
    store.delete(uri)
