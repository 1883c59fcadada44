"""Which store holds a URI, with the endpoint and credentials of S3-compatible storage."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage.file_store import FileStore
from elasticdl.shared.storage.store import ObjectStore
from elasticdl.shared.storage.uris import scheme_of, to_uri

DEFAULT_ENDPOINT = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Settings of the S3 adapter; local files need none."""

    endpoint: str = DEFAULT_ENDPOINT
    """``http(s)://host[:port]`` of the S3 service."""
    access_key: str = ""
    """Access key; empty: anonymous access."""
    secret_key: str = field(default="", repr=False)
    """Secret key. Never printed."""
    session_token: str = field(default="", repr=False)
    """Token of temporary credentials; empty otherwise. Never printed."""
    region: str = ""
    """Region; empty: asked from the service."""
    connect_timeout_s: float = 5.0
    """Seconds to wait for a connection."""
    read_timeout_s: float = 60.0
    """Seconds to wait for the next bytes of an answer."""
    retry_s: float = 20.0
    """Seconds during which a failed request is retried with backoff; 0: no retry."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> StorageSettings:
        """Read the variables that other S3 tools read; ``AWS_*`` beats ``MINIO_*``."""

        def first(*names: str) -> str:
            return next((environment[name] for name in names if environment.get(name)), "")

        return cls(
            endpoint=first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or DEFAULT_ENDPOINT,
            access_key=first("AWS_ACCESS_KEY_ID", "MINIO_ROOT_USER", "MINIO_ACCESS_KEY"),
            secret_key=first("AWS_SECRET_ACCESS_KEY", "MINIO_ROOT_PASSWORD", "MINIO_SECRET_KEY"),
            session_token=first("AWS_SESSION_TOKEN"),
            region=first("AWS_REGION", "AWS_DEFAULT_REGION"),
        )


def open_store(uri: str, settings: StorageSettings | None = None) -> ObjectStore:
    """The store that holds ``uri``; the same store serves every URI of that scheme.

    Args:
        settings: for ``s3://``; ``None`` reads the environment.
    """
    match scheme_of(to_uri(uri)):
        case "file":
            return FileStore()
        case "s3":
            from elasticdl.shared.storage.s3_store import S3Store  # minio takes 0.1 s to import; local jobs need none.

            return S3Store(settings or StorageSettings.from_environment(os.environ))
        case scheme:
            raise UserError(f"{scheme}:// is for tests only", hint="Use a local path or s3://bucket/key.", usage=True)
