"""``elasticdl logs``: what the processes of a job have logged, and what user code has printed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import JobHandle
from elasticdl.shared.errors import UserError

POLL_S = 0.25


def logs(job: JobHandle, pods: Sequence[str], *, lines: int, follow: bool) -> None:
    """Print the logs of a job; ``pods``: whose logs; empty: those of all processes."""
    known = job.logs.pods()
    for pod in pods:
        if pod not in known:
            raise UserError(f"{pod} of job {job.job} has no log", hint=f"There are: {', '.join(known) or 'none'}.")
    console = plain_console()
    found, new = job.logs.read(pods, lines)
    _print(found, console)
    while follow and job.condition().is_running:
        _print(new(), console)
        time.sleep(POLL_S)
    _print(new(last=True), console)


def _print(lines: Iterable[tuple[str, str]], console: Console) -> None:
    for pod, line in lines:
        console.print(f"{pod} | {line}")
