"""Starting processes that can't outlive the launcher.

A child asks the kernel for SIGKILL at its parent's death (``PR_SET_PDEATHSIG``). "Parent" is the *thread* that forked
it, so every child is forked by one thread that lives as long as the process. The request is made between fork and exec
by ``preexec_fn``: one system call through a function that was looked up beforehand, so no lock of another thread is
needed; a wrapper process that execs again would cost an interpreter's start per child.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from elasticdl.shared.errors import PermanentError

_PR_SET_PDEATHSIG = 1
Result = TypeVar("Result")


def die_with_parent() -> Callable[[], None]:
    """A ``preexec_fn`` that ties the child's life to the forking thread's; does nothing where there is no prctl."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def tie() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # It died between fork and prctl; the kernel would not tell us any more.
                os._exit(1)

    return tie


class Spawner:
    """The thread that forks every child of this process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="spawner", daemon=True).start()

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function that forks on the spawner's thread and wait for what it returns or raises."""
        outcome: Future[Result] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # Whatever it is belongs to the caller.
                outcome.set_exception(error)

        self._calls.put(run)
        return outcome.result()

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        output: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> int:
        """Start a process in a session of its own; whoever calls reaps it.

        Args:
            command: program and arguments.
            environment: all of its environment.
            log: what it writes to standard error is appended here.
            output: what it writes to standard output is appended here; to ``log`` when not given.
            stdin: descriptor of its standard input.

        Returns:
            Its process id.

        Raises:
            PermanentError: the program can't be run or the log can't be written.
        """
        try:
            with log.open("ab") as errors, (output or log).open("ab") as lines:
                return self.call(lambda: _fork(command, environment, stdin, lines.fileno(), errors.fileno()))
        except OSError as error:
            raise PermanentError(f"{command[0]} can't be started, its log is {log}: {error.strerror}") from error

    def _serve(self) -> None:
        while True:
            self._calls.get()()


def _fork(command: Sequence[str], environment: Mapping[str, str], stdin: int, output: int, errors: int) -> int:
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=stdin,
        stdout=output,
        stderr=errors,
        start_new_session=True,
        preexec_fn=die_with_parent(),  # noqa: PLW1509 - see the module's docstring
    )
    process.returncode = 0  # Popen shall not reap it, nor warn that nobody did: the caller reaps.
    return process.pid
