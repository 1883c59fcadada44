"""A local port that leads to a port of a pod, through the API server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elasticdl.shared.errors import ElasticDLError

_CHUNK_BYTES = 1 << 16


@contextmanager
def forwarded(connect: Callable[[], socket.socket]) -> Iterator[int]:
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
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)  # Ends the thread, which closing alone does not.


def _accept(server: socket.socket, connect: Callable[[], socket.socket]) -> None:
    while True:
        try:
            local, _ = server.accept()
        except OSError:
            return
        try:
            threading.Thread(target=_serve, args=(local, connect), name="port-forward-open", daemon=True).start()
        except RuntimeError:  # No thread is left. The client sees a closed connection, and tries again.
            local.close()


def _serve(local: socket.socket, connect: Callable[[], socket.socket]) -> None:
    with local:
        try:
            remote = connect()
        except ElasticDLError:
            return  # The client sees a closed connection, and tries again.
        with remote:
            answers = threading.Thread(target=_pump, args=(remote, local), name="port-forward-in", daemon=True)
            answers.start()
            _pump(local, remote)
            answers.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side closes, then close both."""
    with contextlib.suppress(OSError):
        while chunk := source.recv(_CHUNK_BYTES):
            target.sendall(chunk)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
