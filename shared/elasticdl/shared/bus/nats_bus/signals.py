"""Messages that are not stored: heartbeats and orders, on core NATS."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import nats.errors
from nats.aio.msg import Msg

from elasticdl.shared.bus import subjects
from elasticdl.shared.bus.nats_bus.connection import Connection, NoRespondersError
from elasticdl.shared.bus.nats_bus.inbox import Inbox
from elasticdl.shared.bus.ports import OrderHandler, StopServing
from elasticdl.shared.bus.stored_events import shortened
from elasticdl.shared.bus.terms import LaterTermError, Terms
from elasticdl.shared.errors import ElasticDLError, PermanentError, ProtocolError, TransientError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.names import PodName
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines

HEARTBEATS_MAX = 65_536
"""Heartbeats that wait for a busy receiver. Later ones replace the oldest."""
_CAUSE, _TERM = "Elasticdl-Cause", "Elasticdl-Term"

_log = get_logger()


class NatsSignals:
    """See ``ports.Signals``; an order is answered by an empty message, or by the reason of a refusal."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lines = RepeatedLines(_log)

    async def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat."""
        client = self._connection.client
        if not client.is_connected:
            return
        try:
            await client.publish(
                subjects.heartbeat(self._connection.job, heartbeat.service, heartbeat.name),
                codec.encode_heartbeat(heartbeat),
            )
        except (nats.errors.Error, OSError) as error:
            _log.debug("heartbeat lost", reason=str(error))

    async def heartbeats(self) -> AsyncIterator[Heartbeat]:
        """Heartbeats from now on."""
        inbox = Inbox(self._connection, HEARTBEATS_MAX)
        subject = subjects.heartbeats(self._connection.job)
        subscription = await self._connection.client.subscribe(subject, cb=inbox.put)
        try:
            while (message := await inbox.take()) is not None:
                try:
                    heartbeat = codec.decode_heartbeat(message.data)
                except ProtocolError as error:
                    self._lines.warning(
                        "malformed heartbeat ignored", subject=message.subject, reason=shortened(str(error))
                    )
                    continue
                yield heartbeat
        finally:
            if not self._connection.closed:
                await subscription.unsubscribe()

    async def order(self, pod: PodName, command: Command, cause: str, *, term: int = 0) -> None:
        """Send a command to a process."""
        subject = subjects.order(self._connection.job, pod)
        timeout_s = self._connection.settings.order_answer_s
        try:
            headers = {_CAUSE: cause, _TERM: str(term)}
            answer = await self._connection.ask(subject, codec.encode_command(command), headers, timeout_s)
        except NoRespondersError as error:
            raise TransientError(f"{pod} is not reachable") from error
        if answer.data:
            refusal = f"{pod} refused {type(command).__name__}: {answer.data.decode('utf-8', 'replace')}"
            if latest := _term_of(answer.headers or {}):
                raise LaterTermError(refusal, latest=latest)
            raise PermanentError(refusal)

    async def serve_orders(self, pod: PodName, handler: OrderHandler) -> StopServing:
        """Receive orders under this name from now on."""
        terms = Terms()

        async def serve(message: Msg) -> None:
            refusal, latest = "", dict[str, str]()
            headers = message.headers or {}
            try:
                term = _term_of(headers)
                terms.check(term)
                await handler(codec.decode_command(message.data), headers.get(_CAUSE, ""))
                terms.remember(term)
            except LaterTermError as error:
                refusal, latest = str(error), {_TERM: str(error.latest)}
            except ElasticDLError as error:
                refusal = str(error) or type(error).__name__
            await self._connection.client.publish(message.reply, refusal.encode(), headers=latest)

        subscription = await self._connection.client.subscribe(subjects.order(self._connection.job, pod), cb=serve)
        # The client's flush may overtake the subscription; a request does not, so its answer proves the subscription.
        await self._connection.api("INFO", {})

        async def stop() -> None:
            if not self._connection.closed:
                await subscription.unsubscribe()

        return stop


def _term_of(headers: Mapping[str, str]) -> int:
    try:
        return int(headers.get(_TERM, "0"))
    except ValueError as error:
        raise ProtocolError(f"the term of an order is not a number: {headers[_TERM]!r}") from error
