"""Whether the launcher of a job is suspended, by Ctrl-Z or SIGSTOP."""

from __future__ import annotations

import contextlib

import psutil

from elasticdl.cli.jobs.run_directory import RunDirectory


def suspended_launcher(run: RunDirectory) -> int:
    """Process id of the job's launcher if it is suspended; else 0.

    The processes of the job continue meanwhile. A suspended launcher replaces no process and executes no command.
    """
    pid = run.holder()
    with contextlib.suppress(psutil.Error):
        if pid and pid == run.read().launcher_pid and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            return pid
    return 0


def suspension_text(run: RunDirectory) -> str:
    """A line about a suspended launcher; empty if it is not."""
    pid = suspended_launcher(run)
    if not pid:
        return ""
    return f"The launcher (process {pid}) is suspended: no process is replaced. To continue it: kill -CONT {pid}"
