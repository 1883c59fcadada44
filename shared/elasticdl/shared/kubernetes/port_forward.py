"""Bytes between a socket of this process and a port of a pod, through a WebSocket of the API server.

The pump of the package ``kubernetes`` dies and leaves its connection open when the socket is closed with unread bytes.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from websocket import ABNF, WebSocket, WebSocketException

_DATA = 0
"""Channel of the port's bytes, the first byte of every frame. The other channel carries one message before the end."""
_CHANNELS = 2
_CHUNK_BYTES = 1 << 16


class PortForward:
    """Pumps in two threads until either side closes its end, and then closes both."""

    def __init__(self, connection: WebSocket) -> None:
        self.socket, self._inner = socket.socketpair()
        self._connection = connection
        self._sender = threading.Thread(target=self._send, daemon=True, name="port forward to pod")
        self._receiver = threading.Thread(target=self._receive, daemon=True, name="port forward from pod")
        self._sender.start()
        self._receiver.start()

    def _send(self) -> None:
        try:
            while content := self._inner.recv(_CHUNK_BYTES):
                self._connection.send_binary(bytes([_DATA]) + content)
        except (OSError, WebSocketException):
            pass  # The receiver ends for the same reason.
        finally:
            self._connection.abort()

    def _receive(self) -> None:
        announced: set[int] = set()
        try:
            while True:
                opcode, frame = self._connection.recv_data_frame(control_frame=True)
                if opcode == ABNF.OPCODE_CLOSE:
                    break
                if opcode != ABNF.OPCODE_BINARY or not frame.data:
                    continue
                channel, content = frame.data[0], frame.data[1:]
                if channel not in announced and len(announced) < _CHANNELS:
                    announced.add(channel)  # The first frame of a channel has only the number of the port.
                elif channel == _DATA:
                    self._inner.sendall(content)
                else:
                    break
        except (OSError, WebSocketException):
            pass  # The user of the socket sees its end.
        finally:
            self._close()

    def _close(self) -> None:
        with suppress(OSError):  # The other end is closed.
            self._inner.shutdown(socket.SHUT_RDWR)  # Wakes the sender.
        self._sender.join()
        self._inner.close()
        self._connection.shutdown()
