"""Answers ``GET /metrics`` with a text; for processes that have an event loop and no other web server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from elasticdl.shared.monitoring.exposition import CONTENT_TYPE
from elasticdl.shared.process.logs import get_logger

PORTS = 100
"""Ports that are tried, from the wanted one on: a job on one machine has many processes and one setting."""
REQUEST_S_MAX = 5.0
"""Seconds that a client may take to send its request and to receive the answer."""
REQUEST_BYTES_MAX = 1 << 14
_log = get_logger()


@contextlib.asynccontextmanager
async def serving_metrics(text: Callable[[], str], port: int, host: str = "") -> AsyncIterator[int]:
    """Serve while the block runs; gives the port, or 0 if none is free, because a job does not need its metrics.

    Args:
        text: the present metrics.
        port: the first port to try; 0: serve nothing.
        host: where to listen; empty: at all addresses of this machine.
    """
    server = await _listening(text, port, host) if port else None
    if server is None:
        yield 0
        return
    async with server:
        bound: int = server.sockets[0].getsockname()[1]
        _log.info("metrics are served", port=bound)
        yield bound


async def _listening(text: Callable[[], str], port: int, host: str) -> asyncio.Server | None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                async with asyncio.timeout(REQUEST_S_MAX):  # Closing the server waits for all its connections.
                    writer.write(_response(await reader.readuntil(b"\r\n\r\n"), text))
                    await writer.drain()
        finally:
            writer.close()

    for each in range(port, min(port + PORTS, 1 << 16)):
        with contextlib.suppress(OSError):
            return await asyncio.start_server(answer, host or None, each, limit=REQUEST_BYTES_MAX)
    _log.warning("no port is free for metrics", first=port, tried=PORTS)
    return None


def _response(head: bytes, text: Callable[[], str]) -> bytes:
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    status, body = "200 OK", b""
    if method not in ("GET", "HEAD"):
        status = "405 Method Not Allowed"
    elif path != "/metrics":
        status, body = "404 Not Found", b"The metrics are at /metrics.\n"
    else:
        body = text().encode()
    kind = CONTENT_TYPE if status.startswith("200") else "text/plain"
    lines = (f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close")
    return "\r\n".join((*lines, "", "")).encode() + (b"" if method == "HEAD" else body)
