from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contract.servers.fixtures import s3_server
from tests.contract.servers.s3 import S3Server

from elasticdl.shared.storage import MemoryStore, ObjectStore, join, open_store, to_uri
from elasticdl.shared.storage.cache import CachedStore, CacheUsage, DiskCache

__all__ = ["s3_server"]


@dataclass(frozen=True, slots=True)
class Place:
    """A store and an empty prefix in it."""

    store: ObjectStore
    prefix: str

    def uri(self, *names: str) -> str:
        return join(self.prefix, *names)


@pytest.fixture(scope="session")
def bucket(s3_server: S3Server) -> str:
    """One for all tests: in SeaweedFS a bucket takes volumes of its own."""
    name = f"test-{secrets.token_hex(6)}"
    s3_server.make_bucket(name)
    return name


@pytest.fixture(params=["memory", "file", "s3", "cached"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    match request.param:
        case "memory":
            yield Place(MemoryStore(), "memory://here")
        case "file":
            yield Place(open_store(str(tmp_path)), to_uri(tmp_path))
        case "cached":
            disk = DiskCache(tmp_path, 64 << 20, free_share_min=0.0)
            yield Place(CachedStore(MemoryStore(), disk, CacheUsage()), "memory://here")
        case _:
            settings = request.getfixturevalue("s3_server").settings()
            prefix = f"s3://{request.getfixturevalue('bucket')}/{secrets.token_hex(6)}"
            yield Place(open_store(prefix, settings), prefix)
