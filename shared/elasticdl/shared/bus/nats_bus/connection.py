"""A connection to NATS: repeats requests until they are answered, and translates every error."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from elasticdl.shared.addresses import Address, redacted
from elasticdl.shared.bus.nats_bus.publications import Publication, Publisher
from elasticdl.shared.bus.retries import RetryPolicy, WrongLastSequenceError
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.errors import PermanentError, TransientError, UserError
from elasticdl.shared.names import JobId
from elasticdl.shared.process.logs import get_logger

T = TypeVar("T")

STREAM_NOT_FOUND = 10059
MESSAGE_NOT_FOUND = 10037
MESSAGE_NOT_DELETED = 10057
SEQUENCE_NOT_FOUND = 10043
CONSUMER_EXISTS = (10013, 10105, 10148)
STREAM_NAME_IN_USE = 10058
WRONG_LAST_SEQUENCE = (10071, 10164)
_STREAM_CREATE_FAILED = 10049  # seen when another stream is being deleted at that moment
_OUT_OF_STORAGE = (10023, 10028, 10039, 10047, 10076, 10077)
"""Storage exceeded, a write failed, or JetStream is switched off, which is what a server does when its disk is full."""

_ROOM_BYTES_MIN = 1 << 20

_log = get_logger()


class RefusedError(PermanentError):
    """The server refused a request."""

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code


class WrongSequenceError(RefusedError, WrongLastSequenceError):
    """The server refused a write: its writer does not know the last message of the stream or subject."""


class NoRespondersError(TransientError):
    """The subject has no responders: a stream or consumer does not exist, or is not restored yet."""


class Connection:
    """One client's connection; it reconnects by itself, so that its users only see delays."""

    def __init__(
        self, client: Client, job: JobId, settings: BusSettings, credentials: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """``credentials``: arguments of ``Client.connect``."""
        self.client = client
        self.credentials = credentials
        self.job = job
        self.settings = settings
        self._waiting: set[asyncio.Event] = set()
        self._publisher = Publisher(client, settings.answer_s)

    @classmethod
    async def open(cls, url: str, job: JobId, settings: BusSettings) -> Connection:
        """Connect for the first time.

        Raises:
            UserError: no server answers (if the settings call that final), one without JetStream, or a malformed URL.
        """
        addresses = addresses_of(url)
        client = Client()
        connection = cls(client, job, settings, _credentials(addresses))
        reasons: list[str] = []
        refused = asyncio.Event()

        async def note_error(error: Exception) -> None:
            reasons.append(str(error) or type(error).__name__)
            if "authorization" in reasons[-1].lower():
                refused.set()
            _log.debug("NATS error", reason=reasons[-1])

        async def note_loss() -> None:
            if not client.is_closed:
                _log.warning("connection to NATS lost, reconnecting", job=job)

        async def note_return() -> None:
            _log.info("reconnected to NATS", job=job)

        connecting = client.connect(
            servers=[str(address) for address in addresses],
            **connection.credentials,  # type: ignore[arg-type]
            error_cb=note_error,
            disconnected_cb=note_loss,
            reconnected_cb=note_return,
            closed_cb=connection._wake,
            max_reconnect_attempts=-1,
            reconnect_time_wait=settings.retry_pause_s,  # type: ignore[arg-type]  # any number of seconds will do
            connect_timeout=2,
            ping_interval=10,
            max_outstanding_pings=2,
            pending_size=0,  # buffer nothing while disconnected: it would be sent when its sender has stopped waiting
        )
        try:
            await asyncio.wait_for(_unless(refused, connecting), settings.connect_s)
        except (TimeoutError, PermissionError, ValueError, nats.errors.Error) as error:
            await client.close()
            if refused.is_set():
                raise UserError(
                    f"the NATS server at {redact_url(url)} refuses this client: Authorization Violation",
                    hint="Check the user and password, or the token, in --nats_url.",
                ) from error
            reason = f" ({reasons[-1]})" if reasons else ""
            problem = f"no NATS server answers at {redact_url(url)} within {settings.connect_s:g} s{reason}"
            hint = "Check --nats_url, and that the server is running and reachable from here."
            if settings.absence_is_final:
                raise UserError(problem, hint=hint) from error
            raise TransientError(f"{problem}. {hint}") from error
        try:
            await connection._require_jetstream(url)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _require_jetstream(self, url: str) -> None:
        async def has_jetstream() -> bool:
            try:
                await self.api("INFO", {}, once=True)
            except NoRespondersError:
                return False
            return True

        # A busy server accepts a connection, and answers this request seconds later.
        policy = RetryPolicy(limit_s=self.settings.connect_s, pause_s=self.settings.retry_pause_s)
        if await policy.run("JetStream", has_jetstream):
            return
        problem = f"the NATS server at {redact_url(url)} has JetStream switched off"
        hint = "Start it with -js, or see its log: it switches JetStream off when its disk is full."
        if self.settings.absence_is_final:
            raise UserError(problem, hint=hint)
        raise TransientError(f"{problem}. {hint}")

    async def close(self) -> None:
        """Close the connection."""
        await self.client.close()

    async def _wake(self) -> None:
        for event in self._waiting:
            event.set()

    @contextmanager
    def woken_at_the_end(self, event: asyncio.Event) -> Iterator[None]:
        """Within this block the end of the connection sets the event."""
        self._waiting.add(event)
        try:
            yield
        finally:
            self._waiting.discard(event)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called, or the client has given up."""
        return bool(self.client.is_closed)

    async def ask(
        self, subject: str, payload: bytes, headers: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> Msg:
        """Send one request. Raises ``PermanentError``: the message is too large, or the connection is closed."""
        timeout_s = timeout_s or self.settings.answer_s
        own_headers = dict(headers) if headers else None
        return await self.translated(
            subject, payload, lambda: self.client.request(subject, payload, timeout=timeout_s, headers=own_headers)
        )

    async def translated(self, subject: str, payload: bytes, request: Callable[[], Awaitable[T]]) -> T:
        """The answer to a request that the client sends; raises as ``ask`` does."""
        if self.closed:
            raise PermanentError("the connection to NATS is closed")
        if not self.client.is_connected:
            raise TransientError("not connected to NATS")
        try:
            return await request()
        except nats.errors.NoRespondersError as error:
            raise NoRespondersError(f"no responders at {subject}") from error
        except nats.errors.MaxPayloadError as error:
            raise PermanentError(
                f"a message of {len(payload)} bytes for {subject} is above the server's limit of "
                f"{self.client.max_payload} bytes; raise max_payload of the nats-server"
            ) from error
        except nats.errors.ConnectionClosedError as error:
            raise PermanentError("the connection to NATS is closed") from error
        except (nats.errors.Error, OSError) as error:
            raise TransientError(f"NATS did not answer at {subject}: {error or type(error).__name__}") from error

    async def retrying(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry until success, for at most ``retry_s``; only a TransientError of ``attempt`` is retried."""
        policy = RetryPolicy(limit_s=self.settings.retry_s, pause_s=self.settings.retry_pause_s)
        return await policy.run(what, attempt)

    async def api(self, name: str, request: Mapping[str, Any], *, once: bool = False) -> dict[str, Any]:
        """Send a request to JetStream's API.

        Args:
            name: the subject after ``$JS.API.``.

        Raises:
            RefusedError: with JetStream's error code.
        """
        payload = json.dumps(request).encode() if request else b""

        async def attempt() -> dict[str, Any]:
            return self._checked(name, (await self.ask(f"$JS.API.{name}", payload)).data)

        return await attempt() if once else await self.retrying(name, attempt)

    async def store(self, stream: str, subject: str, payload: bytes, headers: Mapping[str, str]) -> int:
        """Publish to a stream until it is acknowledged.

        Raises:
            WrongSequenceError: the writer named a message that is not the last one.
        """

        async def attempt() -> int:
            try:
                answer = await self.ask(subject, payload, headers)
            except NoRespondersError:
                await self._require_stream(stream)
                raise
            except TransientError:
                self._require_room(len(payload))
                raise
            return int(self._checked(subject, answer.data)["seq"])

        return await self.retrying(f"publish to {subject}", attempt)

    async def store_all(self, stream: str, messages: Sequence[Publication]) -> None:
        """Publish messages to a stream at once, and those that are not acknowledged one by one.

        They have message ids, so the broker stores each of them once.
        """
        for one in await self._publisher.publish(messages):
            await self.store(stream, one.subject, one.payload, one.headers)

    async def _require_stream(self, stream: str) -> None:
        try:
            await self.api(f"STREAM.INFO.{stream}", {}, once=True)
        except RefusedError as error:
            if error.error_code == STREAM_NOT_FOUND:
                raise PermanentError(
                    f"the NATS server has lost the stream {stream}; resume the job with a new log"
                ) from error
            raise

    def _require_room(self, payload_bytes: int) -> None:
        """Find out whether a publication has no answer because the server's disk is full: it gives none then."""
        directory = self.settings.run_directory
        if not directory:
            return
        disk = os.statvfs(directory)
        if disk.f_bavail * disk.f_frsize < max(_ROOM_BYTES_MIN, 2 * payload_bytes):
            raise PermanentError(f"the NATS server has no space in {directory}: free some space and resume the job")

    def _checked(self, what: str, data: bytes) -> dict[str, Any]:
        """The server's answer, unless it is an error."""
        answer: dict[str, Any] = json.loads(data)
        error = answer.get("error")
        if error is None:
            return answer
        code, number, text = error.get("code", 0), error.get("err_code", 0), error.get("description", "")
        if number in _OUT_OF_STORAGE or "no space left" in text:
            where = f" in {self.settings.run_directory}" if self.settings.run_directory else ""
            raise RefusedError(
                f"the NATS server has no space{where}: {text}; free some space, restart it and resume the job",
                number,
            )
        if code == 503 or number == _STREAM_CREATE_FAILED:
            raise TransientError(f"{what}: {text}")
        refused = WrongSequenceError if number in WRONG_LAST_SEQUENCE else RefusedError
        raise refused(f"the NATS server refused {what}: {text} ({number})", number)


async def _unless(refused: asyncio.Event, connecting: Coroutine[Any, Any, None]) -> None:
    """Connect, but raise PermissionError once the server has refused: the client itself would retry."""
    attempt, refusal = asyncio.ensure_future(connecting), asyncio.ensure_future(refused.wait())
    try:
        await asyncio.wait((attempt, refusal), return_when=asyncio.FIRST_COMPLETED)
        if refused.is_set():
            raise PermissionError
        attempt.result()
    finally:
        attempt.cancel()
        refusal.cancel()


def addresses_of(url: str) -> list[Address]:
    """The servers that ``--nats_url`` names. Raises ``UserError`` for a wrong address, or different credentials."""
    found = []
    for number, each in enumerate(url.split(","), start=1):
        try:
            found.append(Address.parse(each, scheme="nats"))
        except ValueError as error:
            which = f"part {number} of --nats_url" if "," in url else "--nats_url"
            raise UserError(
                f"{which} is not the URL of a NATS server: {error}",
                hint="Give nats://HOST:PORT. Several URLs are separated by commas; a comma in a password is %2C.",
            ) from None
    if len({(address.user, address.password) for address in found if address.user is not None}) > 1:
        raise UserError(
            f"the NATS servers {redact_url(url)} have different credentials",
            hint="Give the same user and password, or the same token, for all URLs of --nats_url.",
        )
    return found


def redact_url(url: str) -> str:
    """The URLs without user, password and token, for people to read."""
    return redacted(url, scheme="nats")


def _credentials(addresses: Sequence[Address]) -> dict[str, str]:
    """Arguments of ``Client.connect``: it would neither decode credentials in a URL nor find their end."""
    for address in addresses:
        if address.user is not None and address.password is not None:
            return {"user": address.user, "password": address.password}
        if address.user is not None:
            return {"token": address.user}
    return {}
