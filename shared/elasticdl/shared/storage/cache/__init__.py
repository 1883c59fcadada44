"""Keeps what was read from object storage: pages of objects in memory and, within a budget, on the local disk.

``CachedStore`` is an ``ObjectStore`` in front of another one. ``DiskCache`` is a folder that processes share, and
``page_file`` is one of its files.

May import the standard library, google_crc32c and the port of object storage. Must not know what the objects
mean, and must not raise an error that the store behind it would not raise: a disk that fails is no cache.
"""

from elasticdl.shared.storage.cache.cached_store import CachedStore, CacheUsage, StoredRange
from elasticdl.shared.storage.cache.disk_cache import DiskCache
from elasticdl.shared.storage.cache.opening import DataCacheSettings, DataStores

__all__ = ["CacheUsage", "CachedStore", "DataCacheSettings", "DataStores", "DiskCache", "StoredRange"]
