"""Starts processes that can't outlive the launcher.

A child asks the kernel to kill it when its parent dies (``PR_SET_PDEATHSIG``). "Parent" is the *thread* that forked it,
so one thread, which lives as long as the process, forks all children. ``preexec_fn`` makes the request between fork and
exec. It is one system call through a function that was looked up before the fork, so it needs no lock that another
thread may hold. A wrapper process that execs again would cost the start of an interpreter per child.
"""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from elasticdl.shared.errors import PermanentError
from elasticdl.shared.process.operating_system import die_with_parent

Result = TypeVar("Result")


class Spawner:
    """The thread that forks all children of this process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="spawner", daemon=True).start()

    def call(self, function: Callable[[], Result]) -> Result:
        """Run a function that forks on the spawner's thread; returns or raises what the function does."""
        outcome: Future[Result] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # Raised in the calling thread.
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
        """Start a process in a session of its own. The caller has to reap it.

        Args:
            output: its standard output is appended to this file; to ``log`` if not given.
        """
        try:
            with log.open("ab") as errors, (output or log).open("ab") as lines:
                return self.call(lambda: _fork(command, environment, stdin, lines.fileno(), errors.fileno()))
        except OSError as error:
            raise PermanentError(f"{command[0]} can't be started with the log {log}: {error.strerror}") from error

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
    process.returncode = 0  # The caller reaps the process; Popen must neither do it nor warn about it.
    return process.pid
