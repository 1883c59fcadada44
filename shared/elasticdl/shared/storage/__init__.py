"""Object storage as a port: data sets, snapshots, indices and exported models, on ``file://`` or ``s3://``.

May import the standard library, google_crc32c and, in ``s3_store`` alone, minio and urllib3. Must
not know what the objects mean: no plan, no ledger, no file format.
"""

from elasticdl.shared.storage.file_store import free_bytes, remove_abandoned, remove_empty_folders
from elasticdl.shared.storage.memory_store import MemoryStore
from elasticdl.shared.storage.parallel import for_each
from elasticdl.shared.storage.settings import StorageSettings, open_store
from elasticdl.shared.storage.store import ObjectChangedError, ObjectInfo, ObjectNotFoundError, ObjectStore
from elasticdl.shared.storage.uris import display, join, scheme_of, to_uri

__all__ = [
    "MemoryStore",
    "ObjectChangedError",
    "ObjectInfo",
    "ObjectNotFoundError",
    "ObjectStore",
    "StorageSettings",
    "display",
    "for_each",
    "free_bytes",
    "join",
    "open_store",
    "remove_abandoned",
    "remove_empty_folders",
    "scheme_of",
    "to_uri",
]
