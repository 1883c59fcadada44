"""``elasticdl logs``: what the processes of a job have logged, and what user code has printed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.logs import NewLines, is_noise, readable, tail
from elasticdl.shared.errors import UserError

PATTERNS = ("*.log", "*.out")
POLL_S = 0.25


def logs(job: str, root: Path, pods: Sequence[str], *, lines: int, follow: bool) -> None:
    """Print the logs of a job.

    Args:
        job: id or name.
        root: folder of the run directories.
        pods: whose logs; empty: those of all processes.
        lines: how many lines of each file.
        follow: print new lines until the launcher has ended.

    Raises:
        UserError: there is no such job, or a process has no log.
    """
    run = run_directory.find(root, job)
    files = sorted(file for pattern in PATTERNS for file in run.logs.glob(pattern))
    known = {file.stem for file in files}
    for pod in pods:
        if pod not in known:
            raise UserError(f"{pod} has no log in {run.logs}", hint=f"There are: {', '.join(sorted(known)) or 'none'}.")
    console = plain_console()
    new = NewLines(run.logs, PATTERNS)
    for file in files:
        if not pods or file.stem in pods:
            _print(file.stem, tail(file, lines).splitlines(), console)
    if follow:
        _follow(run, new, pods, console)


def _follow(run: RunDirectory, new: NewLines, pods: Sequence[str], console: Console) -> None:
    is_running = True
    while is_running:
        is_running = run.is_locked()
        for pod, line in new.take():
            if (not pods or pod in pods) and not is_noise(line):
                _print(pod, [readable(line)], console)
        time.sleep(POLL_S)


def _print(pod: str, lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(f"{pod} | {line}")
