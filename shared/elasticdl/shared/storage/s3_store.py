"""Objects in S3, MinIO and other S3-compatible stores.

The only module that imports minio; its errors, and urllib3's below it, become ours here. Retries of requests to the
store are decided here, too.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

import urllib3
from minio import Minio
from minio.commonconfig import CopySource
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.response import BaseHTTPResponse

from elasticdl.shared.addresses import Address, redacted
from elasticdl.shared.errors import ElasticDLError, NoSpaceError, PermanentError, TransientError, UserError
from elasticdl.shared.process.retries import Backoff
from elasticdl.shared.storage.settings import StorageSettings
from elasticdl.shared.storage.store import READ_AHEAD_BYTES, ObjectChangedError, ObjectInfo, ObjectNotFoundError
from elasticdl.shared.storage.uris import bucket_and_key

_POOL_CONNECTIONS = 16
_BACKOFF = Backoff(first_s=0.1, max_s=3.0)
_WRONG_CREDENTIALS = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidTokenId", "ExpiredToken", "InvalidToken"}
_DISK_FULL = {"InsufficientStorage", "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull"}
"""The last is what MinIO says of its disks; quotas of a bucket are MinIO's and Ceph's."""
_INSUFFICIENT_STORAGE = 507
_OK, _SERVER_ERROR, _THERE_ALREADY = 200, 500, (409, 412)
"""Answers to a request that creates an object; 409: another one creates it at the moment."""
_AWAY = {
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServerNotInitialized",
    "ServiceUnavailable",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "XMinioServerNotInitialized",
}

Result = TypeVar("Result")


class S3Store:
    """Objects under ``s3://bucket/key``; safe to share between threads."""

    def __init__(self, settings: StorageSettings) -> None:
        self._settings = settings
        endpoint = _endpoint(settings.endpoint)
        if bool(settings.access_key) != bool(settings.secret_key):
            raise UserError(
                "one half of the S3 credentials is missing",
                hint="Set both AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        timeout = urllib3.Timeout(connect=settings.connect_timeout_s, read=settings.read_timeout_s)
        # Retries happen here, where errors are classified, and not a second time in urllib3.
        retries = urllib3.Retry(0, redirect=2)
        self._pool = urllib3.PoolManager(timeout=timeout, maxsize=_POOL_CONNECTIONS, retries=retries)
        self._client = Minio(
            endpoint=endpoint.place,
            access_key=settings.access_key or None,
            secret_key=settings.secret_key or None,
            session_token=settings.session_token or None,
            secure=endpoint.scheme == "https",
            region=settings.region or None,
            http_client=self._pool,
        )

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``."""
        bucket, key_prefix = bucket_and_key(prefix)

        def everything() -> list[ObjectInfo]:
            found = self._client.list_objects(bucket, prefix=key_prefix, recursive=True)
            return sorted((_info(bucket, item) for item in found), key=lambda info: info.uri)  # SeaweedFS does not sort

        yield from self._attempt(prefix, everything)

    def info(self, uri: str) -> ObjectInfo:
        """See ``ObjectStore.info``."""
        bucket, key = bucket_and_key(uri)

        def stat() -> ObjectInfo:
            try:
                return _info(bucket, self._client.stat_object(bucket, key))
            except S3Error:
                # The answer to HEAD has no body with the reason; the answer to a listing has.
                next(self._client.list_objects(bucket, prefix=key), None)
                raise

        return self._attempt(uri, stat)

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        """See ``ObjectStore.read``."""
        if length == 0:
            info = self.info(uri)  # S3 has no empty ranges
            if etag not in ("", info.etag):
                raise ObjectChangedError(uri)
            return b""

        def get() -> bytes:
            response = self._get(uri, start, length, etag)
            if response is None:
                return b""
            with _released(response):
                return response.read()

        return self._attempt(uri, get)

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        """See ``ObjectStore.open``; a connection that breaks is opened again where it stopped."""
        return io.BufferedReader(_Stream(self, uri, start), READ_AHEAD_BYTES)

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        """See ``ObjectStore.write``; large files go up in parts."""
        bucket, key = bucket_and_key(uri)

        def put() -> ObjectInfo:
            if isinstance(data, Path):
                written = self._client.fput_object(bucket, key, str(data))
                return ObjectInfo(uri=uri, size_bytes=data.stat().st_size, etag=written.etag or "")
            written = self._client.put_object(bucket, key, io.BytesIO(data), len(data))
            return ObjectInfo(uri=uri, size_bytes=len(data), etag=written.etag or "")

        return self._attempt(uri, put)

    def create(self, uri: str, data: bytes) -> bool:
        """See ``ObjectStore.create``: the server refuses a request with ``If-None-Match`` if there is an object.

        minio's own methods send no such header, so the request is signed as an address.
        """
        bucket, key = bucket_and_key(uri)

        def put() -> bool:
            url = self._client.presigned_put_object(bucket, key)
            response = self._pool.request("PUT", url, body=data, headers={"If-None-Match": "*"})
            if response.status in _THERE_ALREADY:
                return False
            if response.status >= _SERVER_ERROR:
                raise ServerError(f"the server answers with status {response.status}", response.status)
            if response.status != _OK:
                raise S3Error.fromxml(response)
            return True

        return self._attempt(uri, put)

    def delete(self, uri: str) -> None:
        """See ``ObjectStore.delete``."""
        bucket, key = bucket_and_key(uri)
        self._attempt(uri, lambda: self._client.remove_object(bucket, key))

    def move(self, uri: str, target: str) -> None:
        """See ``ObjectStore.move``: the server copies the object, then it is deleted. Objects of 5 GiB at most."""
        source, destination = bucket_and_key(uri), bucket_and_key(target)
        self._attempt(uri, lambda: self._client.copy_object(*destination, CopySource(*source)))
        self.delete(uri)

    def _get(self, uri: str, start: int, length: int | None, etag: str = "") -> BaseHTTPResponse | None:
        """A response whose body is the range, or None if the range begins at or after the object's end."""
        bucket, key = bucket_and_key(uri)
        headers: dict[str, str | list[str] | tuple[str]] = {"If-Match": f'"{etag}"'} if etag else {}
        try:
            return self._client.get_object(bucket, key, offset=start, length=length or 0, request_headers=headers)
        except S3Error as error:
            if error.code == "InvalidRange":
                return None
            raise

    def _attempt(self, uri: str, request: Callable[[], Result]) -> Result:
        """Run a request and translate its errors; retry transient ones for ``retry_s``."""
        give_up_s = time.monotonic() + self._settings.retry_s
        pauses = _BACKOFF.pauses()
        while True:
            try:
                return request()
            except (MinioException, HTTPError, OSError, ValueError) as error:
                translated = translate(error, uri, self._settings.endpoint)
                if not isinstance(translated, TransientError) or time.monotonic() >= give_up_s:
                    raise translated from error
            time.sleep(random.uniform(0.0, next(pauses)))  # noqa: S311 - so that not all workers come back at once


class _Stream(io.RawIOBase):
    """A stream of one object from a byte on; it reconnects after a broken connection."""

    def __init__(self, store: S3Store, uri: str, start: int) -> None:
        super().__init__()
        self._store = store
        self._uri = uri
        self._position = start
        self._etag = ""
        self._response = store._attempt(uri, self._open)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._store._attempt(self._uri, lambda: self._read(len(buffer)))
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._drop()
        super().close()

    def _open(self) -> BaseHTTPResponse | None:
        response = self._store._get(self._uri, self._position, None, self._etag)
        if response is not None:
            self._etag = response.headers.get("etag", "").strip('"')
        return response

    def _read(self, length: int) -> bytes:
        if self._response is None:
            self._response = self._open()
        if self._response is None:
            return b""
        try:
            return self._response.read(length)
        except (HTTPError, OSError):
            self._drop()
            raise

    def _drop(self) -> None:
        response, self._response = getattr(self, "_response", None), None
        if response is not None:
            response.close()  # unread bytes make the connection useless to the next request
            response.release_conn()


@contextmanager
def _released(response: BaseHTTPResponse) -> Iterator[None]:
    try:
        yield
    finally:
        response.close()
        response.release_conn()


def _endpoint(text: str) -> Address:
    try:
        endpoint = Address.parse(text, scheme="")
    except ValueError:
        endpoint = None
    if endpoint is None or endpoint.scheme not in ("http", "https") or endpoint.path.strip("/") or endpoint.user:
        raise UserError(
            f"{redacted(text, scheme='')!r} is not an S3 endpoint",
            hint="Set AWS_ENDPOINT_URL to http://host:port or https://host, without credentials.",
        )
    return endpoint


def _info(bucket: str, item: object) -> ObjectInfo:
    name, size, etag = (getattr(item, field) for field in ("object_name", "size", "etag"))
    return ObjectInfo(uri=f"s3://{bucket}/{name}", size_bytes=size or 0, etag=(etag or "").strip('"'))


def translate(error: Exception, uri: str, endpoint: str) -> ElasticDLError:
    """The error of this package for an error of minio or urllib3."""
    bucket, _ = bucket_and_key(uri)
    match error:
        case S3Error():
            return _translate_code(error, uri, bucket, endpoint)
        case ServerError() | InvalidResponseError() | HTTPError():
            return TransientError(f"object storage at {endpoint} does not answer ({uri}): {_reason(error)}")
        case OSError():
            return PermanentError(f"{uri}: {error}")
        case _:
            return UserError(f"{uri}: {error}")


def _reason(error: Exception) -> str:
    """Why a request failed. Errors of urllib3 begin with the connection and repeat the URL."""
    if isinstance(error, MaxRetryError) and error.reason:
        return str(error.reason).partition(": ")[2] or str(error.reason)
    return str(error)


def _translate_code(error: S3Error, uri: str, bucket: str, endpoint: str) -> ElasticDLError:
    match error.code:
        case "NoSuchKey":
            return ObjectNotFoundError(uri)
        case "NoSuchBucket":
            return PermanentError(f"bucket {bucket!r} does not exist at {endpoint}; create it or correct {uri}")
        case "AccessDenied":
            return PermanentError(f"{endpoint} denies access to {uri}; the credentials lack the permission")
        case "PreconditionFailed":
            return ObjectChangedError(uri)
        case code if code in _WRONG_CREDENTIALS:
            return UserError(
                f"{endpoint} does not accept the credentials ({code})",
                hint="Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            )
        case code if code in _DISK_FULL or _status(error) == _INSUFFICIENT_STORAGE:
            return NoSpaceError(f"disk full: {endpoint} can't store {uri} ({code})")
        case code if code in _AWAY or _status(error) >= 500:
            return TransientError(f"{endpoint} can't answer now ({code}): {uri}")
        case code:
            return PermanentError(f"{uri}: {code}: {error.message}")


def _status(error: S3Error) -> int:
    """The HTTP status of an answer; 0 if absent."""
    return error.response.status if error.response is not None else 0
