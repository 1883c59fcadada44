"""Selects the adapter for a URI's scheme."""

from __future__ import annotations

import os

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage.file_store import FileStore
from elasticdl.shared.storage.settings import StorageSettings
from elasticdl.shared.storage.store import ObjectStore
from elasticdl.shared.storage.uris import scheme_of, to_uri


def open_store(uri: str, settings: StorageSettings | None = None) -> ObjectStore:
    """The store that holds ``uri``; the same store serves every URI of that scheme.

    Args:
        settings: for ``s3://``; ``None`` reads the environment.
    """
    match scheme_of(to_uri(uri)):
        case "file":
            return FileStore()
        case "s3":
            from elasticdl.shared.storage.s3_store import (
                S3Store,  # minio takes 0.1 s to import; local jobs don't need it
            )

            return S3Store(settings or StorageSettings.from_environment(os.environ))
        case scheme:
            raise UserError(f"{scheme}:// is for tests only", hint="Use a local path or s3://bucket/key.", usage=True)
