"""The launcher's end of the fork servers, one per service; see ``elasticdl.shared.process.fork_server``.

They only save time: whenever one is not ready in time, died or did not answer, processes are started the usual way.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from elasticdl.cli.local.spawner import Spawner
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.fork_server import READY, Request

MODULE = "elasticdl.shared.process.fork_server"
FORKED = (Service.MASTER, Service.PS, Service.WORKER)
READY_S_MAX = 30.0
"""Seconds from its start until it is given up: on a busy machine importing once, late, is still the fastest."""
_ANSWER_S_MAX = 5.0
_ANSWER_BYTES_MAX = 64
_PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Starts the processes of one service by forking them, and everything else as ``Spawner`` does.

    Args:
        spawner: starts the server, and whatever it can't fork.
        command: the command line that a fork stands for; its last word is the module.
    """

    def __init__(self, spawner: Spawner, command: Sequence[str]) -> None:
        self._spawner = spawner
        self._command = list(command)
        self._server: socket.socket | None = None
        self._pid = 0
        self._usable = False
        self._settled = threading.Event()
        self._settled.set()

    def begin(self, *, environment: Mapping[str, str], log: Path) -> None:
        """Start it, and return before it is ready.

        Args:
            environment: all of its environment; what is read at imports must be as for the service.
            log: what it writes is appended here.

        Raises:
            PermanentError: it can't be started or its log can't be written.
        """
        if sys.platform != "linux":
            return
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", MODULE, self._command[-1]]
            self._pid = self._spawner.start(command, environment=environment, log=log, stdin=theirs.fileno())
        self._server = ours
        self._settled.clear()
        threading.Thread(target=self._await_ready, args=(ours,), name="fork-server", daemon=True).start()

    @property
    def is_settled(self) -> bool:
        """Whether it is ready, or will not be."""
        return self._settled.is_set()

    async def settle(self) -> None:
        """Wait until it is ready, or will not be."""
        if not self.is_settled:
            await asyncio.to_thread(self._settled.wait)

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``."""
        if self._usable and list(command) == self._command:
            # A log that can't be opened is the spawner's to explain.
            with (
                contextlib.suppress(OSError),
                log.open("ab") as errors,
                (output or log).open("ab") as lines,
            ):
                pid = self._fork(environment, lines.fileno(), errors.fileno())
                if pid:
                    return pid
        return self._spawner.start(command, environment=environment, log=log, output=output)

    def stop(self) -> tuple[float, int]:
        """End it and say what it cost; those that it forked live on.

        Returns:
            The processor seconds and the most memory (bytes) that it has used.
        """
        self._usable = False
        if self._server is None:
            return 0.0, 0
        os.kill(self._pid, signal.SIGKILL)
        self._settled.wait()
        _, _, resources = os.wait4(self._pid, 0)
        self._server.close()
        self._server = None
        return resources.ru_utime + resources.ru_stime, resources.ru_maxrss * 1024

    def _await_ready(self, server: socket.socket) -> None:
        server.settimeout(READY_S_MAX)
        with contextlib.suppress(OSError):
            self._usable = server.recv(_ANSWER_BYTES_MAX) == READY
        server.settimeout(_ANSWER_S_MAX)
        if not self._usable:
            os.kill(self._pid, signal.SIGKILL)  # It shall not compete with those who have to import by themselves now.
        self._settled.set()

    def _fork(self, environment: Mapping[str, str], output: int, errors: int) -> int:
        """Process id of a new process, or 0 when there is none and will be none."""
        assert self._server is not None
        request = Request(parent=os.getpid(), environment=environment).encode()
        gate, opener = os.pipe()
        try:
            socket.send_fds(self._server, [request], [output, errors, gate])
            pid = int(self._server.recv(_ANSWER_BYTES_MAX))
            os.write(opener, b"!")
        except (OSError, ValueError):
            self._usable = False
            return 0  # A process that was forked nevertheless waits at the gate, which is closed now, and ends.
        else:
            return pid
        finally:
            os.close(gate)
            os.close(opener)


class ForkServers:
    """A fork server for each service, and ``Spawner`` for everything else.

    Args:
        spawner: starts the servers, and whatever they can't fork.
        command: the command line of a service.
    """

    def __init__(self, spawner: Spawner, command: Callable[[Service], list[str]]) -> None:
        self._spawner = spawner
        self._commands = {service: command(service) for service in FORKED}
        self.servers = {service: ForkServer(spawner, line) for service, line in self._commands.items()}

    def begin(self, environment: Callable[[PodName, Service], Mapping[str, str]], log: Callable[[str], Path]) -> None:
        """Start them all, and return before they are ready.

        Args:
            environment: (name, service) -> all of its environment.
            log: name -> file.
        """
        for service, server in self.servers.items():
            name = fork_server_name(service)
            server.begin(environment=environment(name, service), log=log(name))

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``."""
        for service, line in self._commands.items():
            if line == list(command):
                return self.servers[service].start(command, environment=environment, log=log, output=output)
        return self._spawner.start(command, environment=environment, log=log, output=output)

    def stop(self) -> dict[PodName, tuple[float, int]]:
        """End them; returns each one's processor seconds and most memory (bytes)."""
        return {fork_server_name(service): server.stop() for service, server in self.servers.items()}


def fork_server_name(service: Service) -> PodName:
    """What a service's fork server is called in reports and by its log file."""
    return PodName(f"{service.value}-fork-server")
