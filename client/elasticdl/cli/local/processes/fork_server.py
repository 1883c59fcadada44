"""The launcher's side of the fork servers, one per service; see ``elasticdl.shared.process.fork_server``.

Fork servers only save time. If one is not ready in time, died or does not answer, processes are started without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from elasticdl.cli.local.processes.imports import import_environment, module_command, service_command
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.fork_server import READY, Request, WaitingProcess

MODULE = "elasticdl.shared.process.fork_server"
MODEL_CHECK = "elasticdl.worker.model_check"
DATA_PLANNING = "elasticdl.worker.data_planning"
OTHERS: Mapping[Service, Sequence[str]] = {Service.WORKER: (MODEL_CHECK, DATA_PLANNING)}
"""Modules that are run by the fork server of a service, besides that of the service."""
FORKED = (Service.MASTER, Service.PS, Service.WORKER)

READY_S_MAX = 120.0
"""Seconds until a fork server has to be ready. On a busy machine, one slow import is still faster than several: with a
load of 12 on two cores that of TensorFlow takes 20 to 31 s, and begins again in each process if this is too short."""
_ANSWER_S_MAX = 5.0
_ANSWER_BYTES_MAX = 64
_PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    """Starts the processes of one service by forking a process that has imported it; others as ``Spawner`` does.

    Args:
        spawner: starts the server, and processes that it can't fork.
        command: the command line that a fork replaces; its last word is the module.
        others: other modules that need the same imports, and are started like it.
    """

    def __init__(self, spawner: Spawner, command: Sequence[str], others: Sequence[str] = ()) -> None:
        self._spawner = spawner
        self._command = list(command)
        self._commands = [self._command, *([*self._command[:-1], module] for module in others)]
        self._server: socket.socket | None = None
        self._pid = 0
        self._usable = False
        self._settled = threading.Event()
        self._settled.set()
        self._memory = 0
        self._log: Path | None = None
        self._counted_s = 0.0

    def begin(self, *, environment: Mapping[str, str], log: Path | None) -> None:
        """Start the server; returns before it is ready.

        Args:
            environment: all of its environment. Variables that imports read must be those of the service.
            log: its output is appended to this file; None: see ``log_to``.
        """
        if sys.platform != "linux":
            return
        if log is None:
            self._memory = os.memfd_create("log")
            log = Path(f"/proc/self/fd/{self._memory}")
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [*module_command(MODULE), self._command[-1]]
            self._pid = self._spawner.start(command, environment=environment, log=log, stdin=theirs.fileno())
        self._server = ours
        self._settled.clear()
        threading.Thread(target=self._await_ready, args=(ours,), name="fork-server", daemon=True).start()

    def log_to(self, log: Path) -> None:
        """Write the output to this file when the server is stopped, if it has begun without a log."""
        self._log = log

    @property
    def has_begun(self) -> bool:
        """Whether the server was started."""
        return self._pid != 0

    @property
    def is_settled(self) -> bool:
        """Whether the server is ready or has failed."""
        return self._settled.is_set()

    async def settle(self) -> None:
        """Wait until the server is ready or has failed."""
        if not self.is_settled:
            import asyncio  # It takes 40 ms, which the start of a server does not wait for.

            await asyncio.to_thread(self.wait)

    def wait(self) -> None:
        """As ``settle``, for a caller without a loop."""
        self._settled.wait()

    def serves(self, command: Sequence[str]) -> bool:
        """Whether this server is for a command line."""
        return list(command) in self._commands

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``."""
        if self._usable and self.serves(command):
            # If the log can't be opened, the spawner raises the error.
            with (
                contextlib.suppress(OSError),
                log.open("ab") as errors,
                (output or log).open("ab") as lines,
            ):
                pid = self._fork(command[-1], environment, lines.fileno(), errors.fileno())
                if pid:
                    return pid
        return self._spawner.start(command, environment=environment, log=log, output=output)

    def stop(self) -> tuple[float, int]:
        """Stop the server, not what it forked; returns the CPU seconds and the largest memory (bytes) that it used."""
        self._usable = False
        if self._server is None:
            return 0.0, 0
        os.kill(self._pid, signal.SIGKILL)
        self._settled.wait()
        _, _, resources = os.wait4(self._pid, 0)
        self._server.close()
        self._server = None
        self._write_log()
        if self._memory:
            os.close(self._memory)
            self._memory = 0
        return resources.ru_utime + resources.ru_stime, resources.ru_maxrss * 1024

    def end_job(self) -> tuple[float, int]:
        """Keep the server for another job; returns the CPU seconds since the last job, and its memory as ``stop``.

        A server that can't be used any more is stopped, so that ``begin`` starts another one.
        """
        if self.is_settled and not self._usable:
            cpu_s, rss_bytes = self.stop()
            used_s, self._counted_s, self._pid, self._log = max(0.0, cpu_s - self._counted_s), 0.0, 0, None
            return used_s, rss_bytes
        from elasticdl.cli.local.processes.children import used_by  # The first server starts without waiting for it.

        self._write_log()
        now = used_by(self._pid)
        used_s, self._counted_s = max(0.0, now.cpu_s - self._counted_s), now.cpu_s  # 0: it has just ended.
        return used_s, now.rss_max_bytes

    def _write_log(self) -> None:
        """Write what the server has printed without a log of its own to that of the job."""
        if self._memory:
            with open(self._memory, "r+b", closefd=False) as memory, contextlib.suppress(OSError):
                memory.seek(0)
                if self._log and (content := memory.read()):
                    self._log.write_bytes(content)
                    memory.truncate(0)
        self._log = None

    def _await_ready(self, server: socket.socket) -> None:
        server.settimeout(READY_S_MAX)
        with contextlib.suppress(OSError):
            self._usable = server.recv(_ANSWER_BYTES_MAX) == READY
        server.settimeout(_ANSWER_S_MAX)
        if not self._usable:
            os.kill(self._pid, signal.SIGKILL)  # It must not compete with the processes that import for themselves now.
        self._settled.set()

    def _fork(self, module: str, environment: Mapping[str, str], output: int, errors: int) -> int:
        """Fork a process; returns its id, or 0 if the server failed."""
        assert self._server is not None
        other = "" if module == self._command[-1] else module
        request = Request(parent=os.getpid(), environment=environment, module=other).encode()
        gate, opener = os.pipe()
        try:
            socket.send_fds(self._server, [request], [output, errors, gate])
            pid = int(self._server.recv(_ANSWER_BYTES_MAX))
            os.write(opener, b"!")
        except (OSError, ValueError):
            self._usable = False
            return 0  # A process that was forked nevertheless sees the gate closed, and ends.
        else:
            return pid
        finally:
            os.close(gate)
            os.close(opener)


class ForkServers(contextlib.AbstractContextManager["ForkServers"]):
    """A fork server for each service, and ``Spawner`` for other processes. Stops the servers at the end of its context.

    Processes that have checked the model wait here until their workers are ordered; see ``keep``.

    Args:
        environment: all of the environment of a server. Variables that imports read must be those of the service.
        several_jobs: whether the servers outlive a job.
    """

    def __init__(
        self,
        spawner: Spawner,
        command: Callable[[Service], list[str]],
        environment: Callable[[Service], Mapping[str, str]],
        *,
        several_jobs: bool = False,
    ) -> None:
        self.spawner = spawner
        self._environment = environment
        self.servers = {service: ForkServer(spawner, command(service), OTHERS.get(service, ())) for service in FORKED}
        self._waiting: dict[Path, WaitingProcess] = {}
        self._left_out: set[Service] = set()
        self._several_jobs = several_jobs
        self._lock = threading.Lock()
        self._is_stopped = False

    def leave_out(self, service: Service) -> None:
        """Start no server for a service of which the job has no processes."""
        self._left_out.add(service)

    def begin(self, logs: Path | None, services: Iterable[Service] = FORKED) -> None:
        """Start servers that have not been started; returns before they are ready. Threads may call it.

        Args:
            logs: folder for their logs; None: not known yet; another call of this method will give it.
        """
        for service in services:
            if service in self._left_out:
                continue
            server, log = self.servers[service], logs and logs / f"{fork_server_name(service)}.log"
            with self._lock:
                if not server.has_begun and not self._is_stopped:
                    server.begin(environment=self._environment(service), log=None if self._several_jobs else log)
            if log:
                server.log_to(log)

    def keep(self, log: Path, process: WaitingProcess) -> None:
        """Keep a process for the next start of the process with this log, which it writes to already."""
        self._waiting[log] = process

    def start(
        self, command: Sequence[str], *, environment: Mapping[str, str], log: Path, output: Path | None = None
    ) -> int:
        """See ``Spawner.start``."""
        if waiting := self._waiting.pop(log, None):
            if waiting.send(environment):
                return waiting.pid
            waiting.kill()
        for server in self.servers.values():
            if server.serves(command):
                return server.start(command, environment=environment, log=log, output=output)
        return self.spawner.start(command, environment=environment, log=log, output=output)

    def end_job(self) -> dict[PodName, tuple[float, int]]:
        """Stop all servers, unless they serve several jobs.

        Returns:
            The CPU seconds that each has used for this job, and its largest memory (bytes).
        """
        self._kill_waiting()
        return {
            fork_server_name(service): server.end_job() if self._several_jobs else server.stop()
            for service, server in self.servers.items()
            if server.has_begun
        }

    def stop(self) -> None:
        """Stop all servers, for good."""
        with self._lock:
            self._is_stopped = True
        self._kill_waiting()
        for server in self.servers.values():
            server.stop()

    def _kill_waiting(self) -> None:
        while self._waiting:
            self._waiting.popitem()[1].kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def fork_servers(*, processes: int, seed: int, envs: Mapping[str, str], several_jobs: bool = False) -> ForkServers:
    """The fork servers of a job, or of several; none is started yet.

    Args:
        processes: how many workers and ps a job has.
    """
    imports = import_environment(os.environ, processes=processes, seed=seed)

    def environment(service: Service) -> dict[str, str]:
        return imports if service is Service.MASTER else {**imports, **envs}

    return ForkServers(Spawner(), service_command, environment, several_jobs=several_jobs)


def fork_server_name(service: Service) -> PodName:
    """Name of a service's fork server in reports and of its log file."""
    return PodName(f"{service.value}-fork-server")
