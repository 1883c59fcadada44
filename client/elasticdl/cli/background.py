"""``--detach``: a command continues in a process of its own, and returns when the job has been accepted.

The process is forked before the command starts threads or other processes. It has its own session, so that it outlives
the terminal, but prints to the terminal until the job is accepted: wrong input is reported as without ``--detach``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable

from elasticdl.cli import exit_codes
from elasticdl.cli.jobs.accepted import leaving_lines, report_job

Accept = Callable[[str, str], None]
"""Is called in the background when the job is accepted, with its id, and the job as on a command line."""


def run_in_background(run: Callable[[Accept], int]) -> int:
    """Run a command in the background.

    Args:
        run: the rest of the command; returns its exit code. It is called in the background process only.

    Returns:
        In the foreground: 0 when the job is accepted, or the exit code of a command that ended before. In the
        background: what ``run`` returns.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            return _wait(pid, pipe.read)
    os.close(reader)
    os.setsid()
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)

    def accept(job: str, arguments: str) -> None:
        report_job(job)
        with contextlib.suppress(OSError), open(writer, "w", encoding="utf-8") as pipe:  # The foreground was killed.
            pipe.write(arguments)

    return run(accept)


def _wait(pid: int, read: Callable[[], str]) -> int:
    """Wait until the job is accepted or the process in the background has ended; returns the exit code."""
    try:
        arguments = read()
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGINT)
        return _exit_code(pid)
    if not arguments:
        return _exit_code(pid)
    sys.stdout.write(f"{leaving_lines(arguments, 'is running in the background')}\n")
    return exit_codes.SUCCESS


def _exit_code(pid: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code >= 0:
        return code
    sys.stderr.write(
        f"Error: the process in the background was killed (signal {-code}) before the job was accepted\n"
        "If you did not kill it, the machine may have run out of memory: dmesg shows the kernel's log.\n"
    )
    return exit_codes.FAILURE
