"""``python -m elasticdl.shared.process.fork_server MODULE``: imports a service once and forks its processes.

For the processes of one machine: imports are most of what a service does before it is of any use, and one that takes
another's place is there at once. The launcher speaks to it over the socket that is its standard input:

    fork server -> launcher    ``READY``, when the import is done
    launcher -> fork server    JSON of a ``Request``, with three descriptors: output, errors, a pipe to wait at
    fork server -> launcher    the new process' id

MODULE is what ``python -m`` runs without a fork server: it has a ``main`` that returns the exit code and may have a
``prepare`` that imports what it would otherwise import late.

A process is forked twice and its first parent ends, which makes it a child of the launcher (a "subreaper"): it is
waited for, signalled and accounted for like a process that the launcher started itself. It waits until the launcher,
knowing its id, writes to the pipe; if the launcher hangs up instead, it ends without having done anything.

Forking is safe because nothing has run: the imports, TensorFlow's and numba's among them, start no threads, and should
a version do so, this process refuses to be used. OpenBLAS and jemalloc (of Arrow) have threads and handlers that take
care of them at a fork.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from elasticdl.shared.process.exit_codes import leave
from elasticdl.shared.process.fast_import import without_collection

READY = b"ready"
REQUEST_BYTES_MAX = 128 << 10
"""An environment beyond it has to be given to a process that is started the usual way."""
_DESCRIPTORS = 3
_HARMLESS_THREADS = frozenset({"jemalloc_bg_thd"})
_PR_SET_PDEATHSIG = 1
_EXIT_ABANDONED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A process that is wanted.

    Attributes:
        parent: process id of the launcher.
        environment: all of its environment.
    """

    parent: int
    environment: Mapping[str, str]

    def encode(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode()


def main(name: str) -> int:
    """Serve until the launcher hangs up.

    Args:
        name: of the module that every fork runs.

    Returns:
        0, or 1 when this process must not be forked.
    """
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
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != request.parent:  # It ended before prctl; the kernel sends no signal any more.
            os._exit(_EXIT_ABANDONED)
        for descriptor in (*inherited, output, errors, gate):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request.environment)
        random.seed()
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()
        leave(module.main())
    except BaseException:  # It must not continue as another fork server.
        traceback.print_exc()
    finally:
        os._exit(os.EX_SOFTWARE)


def _replace(descriptor: int, by: int) -> None:
    os.dup2(by, descriptor)


def _threads_after_a_fork() -> list[str]:
    """Names of the threads, this one aside, that are not taken care of at a fork; a first fork shows which are."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    others = [task for task in Path("/proc/self/task").iterdir() if int(task.name) != os.getpid()]
    names = [(task / "comm").read_text().strip() for task in others]
    return [name for name in names if name not in _HARMLESS_THREADS]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
