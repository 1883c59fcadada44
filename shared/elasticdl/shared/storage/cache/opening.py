"""Opens the store of a job's data, with a cache where it is in object storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.shared.storage.cache.cached_store import CachedStore, CacheUsage, StoredRange
from elasticdl.shared.storage.cache.disk_cache import DiskCache
from elasticdl.shared.storage.settings import open_store
from elasticdl.shared.storage.store import ObjectStore
from elasticdl.shared.storage.uris import scheme_of, to_uri


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCacheSettings:
    """Where pages are kept; ``bytes_max``: budget on disk, bytes; 0: pages are only kept in memory."""

    folder: Path
    bytes_max: int

    @classmethod
    def of(cls, folder: str, bytes_max: int, environment: Mapping[str, str]) -> DataCacheSettings:
        """Settings with the default folder where none is given: ``elasticdl/data`` in the user's cache folder."""
        caches = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(folder=Path(folder) if folder else caches / "elasticdl" / "data", bytes_max=bytes_max)


class DataStores:
    """Opens the stores of data for one process, which all share one cache; any thread may call.

    Attributes:
        usage: what reading object storage has cost.
    """

    def __init__(self, settings: DataCacheSettings) -> None:
        self._settings = settings
        self._cached: CachedStore | None = None
        self.usage = CacheUsage()

    def open(self, uri: str) -> ObjectStore:
        """The store that holds ``uri``, behind the cache if it is object storage; local files need none."""
        if scheme_of(to_uri(uri)) == "file":
            return open_store(uri)
        if self._cached is None:
            size = self._settings.bytes_max
            disk = DiskCache(self._settings.folder, size) if size else None
            self._cached = CachedStore(open_store(uri), disk, self.usage)
        return self._cached

    @property
    def reads_ahead(self) -> bool:
        """Whether data in object storage was opened. To read local files ahead would only take CPU time."""
        return self._cached is not None

    def prefetch(self, ranges: Iterable[StoredRange]) -> None:
        """Begin to read ranges of objects in object storage, and return at once."""
        if self._cached is not None:
            self._cached.prefetch(ranges)
