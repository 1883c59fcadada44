"""What goes wrong with a real S3 server, and what the user is told."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from minio.error import S3Error
from tests.contract.servers.s3 import S3Server, free_port
from urllib3 import HTTPResponse

from elasticdl.shared.errors import NoSpaceError, PermanentError, TransientError, UserError
from elasticdl.shared.storage import ObjectStore, StorageSettings, open_store
from elasticdl.shared.storage.s3_store import translate
from elasticdl.shared.storage.store import READ_AHEAD_BYTES


def everything(store: ObjectStore, uri: str) -> Iterator[object]:
    """Each way to use an object, lazily."""
    yield lambda: store.info(uri)
    yield lambda: store.read(uri, 0, 1)
    yield lambda: store.open(uri)
    yield lambda: list(store.list(uri))
    yield lambda: store.write(uri, b"x")


@pytest.mark.parametrize("use", range(5))
@pytest.mark.parametrize("wrong", [{"access_key": "nobody"}, {"secret_key": "not-the-password"}])
def test_wrong_credentials(s3_server: S3Server, bucket: str, use: int, wrong: dict[str, str]) -> None:
    store = open_store(f"s3://{bucket}", s3_server.settings(**wrong))
    with pytest.raises(UserError, match=f"{s3_server.endpoint} does not accept the credentials"):
        list(everything(store, f"s3://{bucket}/a"))[use]()  # type: ignore[operator]


@pytest.mark.parametrize("use", range(5))
def test_no_such_bucket(s3_server: S3Server, use: int) -> None:
    store = open_store("s3://no-such-bucket", s3_server.settings())
    with pytest.raises(PermanentError, match=f"bucket 'no-such-bucket' does not exist at {s3_server.endpoint}"):
        list(everything(store, "s3://no-such-bucket/a"))[use]()  # type: ignore[operator]


@pytest.mark.parametrize("use", range(5))
def test_no_server_answers(use: int) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    store = open_store("s3://bucket", StorageSettings(endpoint=endpoint, retry_s=0))
    with pytest.raises(TransientError, match=f"object storage at {endpoint} does not answer"):
        list(everything(store, "s3://bucket/a"))[use]()  # type: ignore[operator]


def test_anonymous_access_is_denied(s3_server: S3Server, bucket: str) -> None:
    store = open_store(f"s3://{bucket}", StorageSettings(endpoint=s3_server.endpoint, retry_s=0))
    with pytest.raises(PermanentError, match="denies access"):
        store.read(f"s3://{bucket}/a")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (507, "XMinioStorageFull"),
        (400, "XMinioAdminBucketQuotaExceeded"),
        (403, "QuotaExceeded"),
        (507, "AnotherName"),
    ],
)
def test_a_storage_that_is_full(status: int, code: str) -> None:
    error = S3Error(HTTPResponse(status=status), code, "", "", "", "")
    translated = translate(error, "s3://bucket/key", "http://host:9000")
    assert type(translated) is NoSpaceError
    assert str(translated) == f"disk full: http://host:9000 can't store s3://bucket/key ({code})"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"endpoint": "localhost:9000"}, "is not an S3 endpoint"),
        ({"endpoint": "http://localhost:9000/path"}, "is not an S3 endpoint"),
        ({"access_key": "a"}, "one half of the S3 credentials is missing"),
        ({"secret_key": "a"}, "one half of the S3 credentials is missing"),
    ],
)
def test_settings_that_can_not_work(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_store("s3://b", StorageSettings(**changes))  # type: ignore[arg-type]


def test_a_uri_without_bucket(s3_server: S3Server) -> None:
    with pytest.raises(UserError, match="has no bucket"):
        open_store("s3://", s3_server.settings()).read("s3:///key")


def test_settings_come_from_the_variables_of_other_tools(s3_server: S3Server) -> None:
    settings = StorageSettings.from_environment(s3_server.environment())
    assert (settings.endpoint, settings.access_key) == (s3_server.endpoint, s3_server.access_key)
    assert s3_server.secret_key not in repr(settings)
    minio = StorageSettings.from_environment({"MINIO_ROOT_USER": "u", "MINIO_ROOT_PASSWORD": "p"})
    assert (minio.access_key, minio.secret_key) == ("u", "p")
    assert minio.endpoint == "https://s3.amazonaws.com"


class BreakingProxy:
    """Passes connections on; each of the first ``breaks`` is cut after ``answer_bytes`` bytes of answers."""

    def __init__(self, endpoint: str, answer_bytes: int, breaks: int) -> None:
        self._target = urlsplit(endpoint)
        self._answer_bytes = answer_bytes
        self._breaks = breaks
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> str:
        self._threads[0].start()
        return self.endpoint

    def __exit__(self, *_: object) -> None:
        _cut(self._listener)
        self._threads[0].join()  # no more sockets and threads after this
        _cut(*self._sockets[1:])
        for thread in self._threads[1:]:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was shut down
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._target.hostname, self._target.port or 80))
                self._sockets += [client, server]
                limit = self._answer_bytes if self._breaks > 0 else None
                self._breaks -= 1
                for ends in ((client, server, None), (server, client, limit)):
                    self._threads.append(threading.Thread(target=_pump, args=ends))
                    self._threads[-1].start()


def _pump(source: socket.socket, sink: socket.socket, limit: int | None) -> None:
    sent = 0
    with suppress(OSError):  # the other direction was cut
        while data := source.recv(1 << 16):
            sink.sendall(data if limit is None else data[: limit - sent])
            sent += len(data)
            if limit is not None and sent >= limit:
                break
    _cut(source, sink)
    for end in (source, sink):
        end.close()  # with bytes unread this resets the connection, which the server notices at once


def _cut(*sockets: socket.socket) -> None:
    for end in sockets:
        with suppress(OSError):  # cut before
            end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("way", ["read", "open", "list", "write"])
def test_broken_connections_are_survived(s3_server: S3Server, bucket: str, way: str) -> None:
    data = bytes(range(256)) * 20_000
    uri = f"s3://{bucket}/broken/{way}"
    open_store(uri, s3_server.settings()).write(uri, data)
    with BreakingProxy(s3_server.endpoint, 1_000_000 if way in ("read", "open") else 10, 3) as endpoint:
        store = open_store(uri, s3_server.settings(endpoint=endpoint, region="us-east-1"))
        match way:
            case "read":
                assert store.read(uri) == data
            case "open":
                with store.open(uri, 5) as stream:
                    assert stream.read() == data[5:]
            case "list":
                assert [info.size_bytes for info in store.list(uri)] == [len(data)]
            case _:
                assert store.write(uri, data[:9]).size_bytes == 9


def test_a_stream_does_not_mix_two_contents(s3_server: S3Server, bucket: str) -> None:
    uri = f"s3://{bucket}/a"
    direct = open_store(uri, s3_server.settings())
    direct.write(uri, bytes(12_000_000))
    # Cut a little behind the read-ahead: MinIO lets no client replace an object while an answer is on its way.
    with BreakingProxy(s3_server.endpoint, READ_AHEAD_BYTES + 40_000, 1) as endpoint:
        store = open_store(uri, s3_server.settings(endpoint=endpoint, region="us-east-1"))
        with store.open(uri) as stream:
            assert stream.read(10) == bytes(10)
            direct.write(uri, b"\1" * 12_000_000)
            with pytest.raises(PermanentError, match="changed while it was being read"):
                stream.read()
