"""``python -m elasticdl.shared.process.fork_server MODULE``: imports a service once and forks its processes.

Imports take most of a service's start-up time; with a fork server, a restarted process is ready at once. It serves the
processes of one machine. The launcher uses it through the socket that is its standard input:

    fork server -> launcher    ``READY``, when the import is done
    launcher -> fork server    JSON of a ``Request``, with three descriptors: output, errors, a pipe to wait for
    fork server -> launcher    the id of the new process

MODULE is the module that ``python -m`` runs without a fork server. It has a ``main`` that returns the exit code, and
may have a ``prepare`` that does imports which would otherwise happen late.

A process is forked twice and its first parent exits, so that it becomes a child of the launcher (a "subreaper"), like a
process that the launcher started itself. It waits until the launcher knows its id and writes to the pipe; if the
launcher closes the pipe instead, it exits.

Forking is safe because no threads run: the imports, TensorFlow's and numba's among them, start none. If a version does,
this process refuses to serve. OpenBLAS and jemalloc (of Arrow) have threads and fork handlers for them.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.operating_system import die_with_parent, kill_group

READY = b"ready"
REQUEST_BYTES_MAX = 128 << 10
"""Largest request; a process with a larger environment is started without the fork server."""
_DESCRIPTORS = 3
_HARMLESS_THREADS = frozenset({"jemalloc_bg_thd"})
_EXIT_ABANDONED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to start a process.

    Attributes:
        module: whose ``main`` it runs; empty: the one that the server imported.
    """

    parent: int
    environment: Mapping[str, str]
    module: str = ""

    def encode(self) -> bytes:
        """The request as bytes."""
        return json.dumps(asdict(self)).encode()


def main(name: str) -> int:
    """Serve until the launcher closes the socket. Returns 0, or 1 when this process must not be forked."""
    launcher = socket.socket(fileno=os.dup(0))
    _replace(0, os.open(os.devnull, os.O_RDONLY))
    module = _imported(name)
    threads = _threads_after_a_fork()
    if threads:
        sys.stderr.write(f"not used: the import started the threads {threads}, which a fork would lose\n")
        return 1
    launcher.send(READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(launcher, REQUEST_BYTES_MAX, _DESCRIPTORS)
        if not message:
            return 0
        pid = _fork(module, Request(**json.loads(message)), descriptors, launcher.fileno())
        for descriptor in descriptors:
            os.close(descriptor)
        launcher.send(str(pid).encode())


def _imported(name: str) -> ModuleType:
    """Import the module and all that it needs, exempt from garbage collection: modules are permanent."""
    with without_collection():
        module = importlib.import_module(name)
        getattr(module, "prepare", lambda: None)()
    return module


def _fork(module: ModuleType, request: Request, descriptors: list[int], launcher: int) -> int:
    """Fork a process; when this returns, the launcher is its parent."""
    come, go = os.pipe()
    between = os.fork()
    if between == 0:
        pid = os.fork()
        if pid:
            os.write(go, str(pid).encode())
            os._exit(0)
        _live(module, request, *descriptors, inherited=[launcher, come, go])
    os.close(go)
    pid = int(os.read(come, 32))
    os.close(come)
    os.waitpid(between, 0)
    return pid


def _live(
    module: ModuleType, request: Request, output: int, errors: int, gate: int, *, inherited: list[int]
) -> NoReturn:
    """What a process started with ``python -m`` would be."""
    try:
        os.setsid()
        _replace(1, output)
        _replace(2, errors)
        if not os.read(gate, 1):
            os._exit(_EXIT_ABANDONED)
        die_with_parent(request.parent)()
        with suppress(OSError):  # A folder may be removed while it is a working directory.
            os.chdir(f"/proc/{request.parent}/cwd")  # The launcher may have changed it since it started the server.
        for descriptor in (*inherited, output, errors, gate):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request.environment)
        tempfile.tempdir = None  # An import may have asked for it, in the environment of this process.
        random.seed()
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()
        leave((importlib.import_module(request.module) if request.module else module).main())
    except BaseException:  # It must not continue as another fork server.
        traceback.print_exc()
    finally:
        os._exit(os.EX_SOFTWARE)


def _replace(descriptor: int, by: int) -> None:
    os.dup2(by, descriptor)


def _threads_after_a_fork() -> list[str]:
    """Names of other threads that would not survive a fork; a trial fork shows which ones do."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    others = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    names = [(task / "comm").read_text().strip() for task in others]
    return [name for name in names if name not in _HARMLESS_THREADS]


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable the garbage collector in this block, and exempt all present objects from it: modules are permanent."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Handover:
    """How a process that has checked the model becomes a worker: it waits until the launcher sends it an environment.

    The environment of a worker is known when the NATS server runs and the master has ordered the worker. It travels
    through a named pipe, whose end in the process this is. A process that gets none is killed. Open it before the
    launcher may send: it can only send to a pipe that is open.
    """

    def __init__(self, pipe: Path) -> None:
        # Open for writing too, so that the pipe has no end before the launcher has opened it.
        self._pipe = pipe.open("r+b", buffering=0)

    def wait(self) -> Mapping[str, str]:
        """Wait for the environment."""
        environment: Mapping[str, str] = json.loads(self._pipe.readline())
        self.close()
        return environment

    def close(self) -> None:
        """Close the pipe; nothing can be sent any more."""
        self._pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingProcess:
    """The launcher's side of a ``Handover``."""

    pid: int
    pipe: Path

    def send(self, environment: Mapping[str, str]) -> bool:
        """Send the process its environment.

        Returns:
            Whether it was sent. If not, the process has died, or the environment is larger than the pipe.
        """
        message = json.dumps(dict(environment)).encode() + b"\n"
        try:
            pipe = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.write(pipe, message) == len(message)
        except OSError:
            return False
        finally:
            os.close(pipe)

    def kill(self) -> None:
        """Kill and reap the process, and kill what it has started."""
        kill_group(self.pid)
        os.waitpid(self.pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
