"""A local port that leads to a port of a pod, through a WebSocket of the API server for each connection.

The pump of the package ``kubernetes`` dies and leaves its connection open when the socket is closed with unread bytes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from websocket import ABNF, WebSocket, WebSocketException

from elasticdl.shared.errors import ElasticDLError

_DATA = 0
"""Channel of the port's bytes, the first byte of every frame. The other channel carries one message before the end."""
_CHANNELS = 2
_CHUNK_BYTES = 1 << 16


@contextmanager
def forwarded(connect: Callable[[], WebSocket]) -> Iterator[int]:
    """Forward connections as long as the context is open.

    Args:
        connect: opens a connection to the port of the pod; is called for each local connection, on a thread of its own.

    Yields:
        The number of the local port. Only this machine reaches it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, connect), name="port-forward", daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # Ends the thread, which closing alone does not.


def _accept(server: socket.socket, connect: Callable[[], WebSocket]) -> None:
    while True:
        try:
            local, _ = server.accept()
        except OSError:
            return
        try:
            threading.Thread(target=_serve, args=(local, connect), name="port-forward-send", daemon=True).start()
        except RuntimeError:  # No thread is left. The client sees a closed connection, and tries again.
            local.close()


def _serve(local: socket.socket, connect: Callable[[], WebSocket]) -> None:
    """Pump bytes in two threads until either side closes its end, and then close both."""
    with local:
        try:
            connection = connect()
        except ElasticDLError:
            return  # The client sees a closed connection, and tries again.
        answers = threading.Thread(target=_receive, args=(connection, local), name="port-forward-receive", daemon=True)
        answers.start()
        with suppress(OSError, WebSocketException):
            while content := local.recv(_CHUNK_BYTES):
                connection.send_binary(bytes([_DATA]) + content)
        connection.abort()  # Wakes the receiver.
        answers.join()
        connection.shutdown()


def _receive(connection: WebSocket, local: socket.socket) -> None:
    announced: set[int] = set()
    with suppress(OSError, WebSocketException):
        while True:
            opcode, frame = connection.recv_data_frame(control_frame=True)
            if opcode == ABNF.OPCODE_CLOSE:
                break
            if opcode != ABNF.OPCODE_BINARY or not frame.data:
                continue
            channel, content = frame.data[0], frame.data[1:]
            if channel not in announced and len(announced) < _CHANNELS:
                announced.add(channel)  # The first frame of a channel has only the number of the port.
            elif channel == _DATA:
                local.sendall(content)
            else:
                break
    with suppress(OSError):  # The other end is closed.
        local.shutdown(socket.SHUT_RDWR)  # Wakes the sender.
