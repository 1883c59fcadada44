"""``elasticdl clean``: deletes the folders of jobs that have ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.local_handle import shown_state
from elasticdl.cli.jobs.run_directory import RunDirectory, remove_temporary
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.storage import display
from elasticdl.shared.words import count

DAMAGED = "damaged"
"""Shown as the state of a job whose job.json can't be read."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanSettings:
    """Which jobs are deleted, and how.

    Attributes:
        older_than_days: jobs that are not given by name must have ended this long ago, unless they were killed before
            they began.
        unfinished: also delete jobs that could be resumed.
        dry_run: only print what would be deleted.
        confirmed: do not ask before deleting jobs that could be resumed.
    """

    older_than_days: float = 7.0
    unfinished: bool = False
    dry_run: bool = False
    confirmed: bool = False


def clean(root: Path, jobs: list[str], settings: CleanSettings) -> None:
    """Delete the folders of jobs.

    Args:
        jobs: ids or names; empty: all jobs that are old enough.

    Raises:
        UserError: a job is running or could be resumed, or the deletion needs a confirmation and there is no terminal.
    """
    console = plain_console()
    chosen = [run_directory.find(root, job) for job in jobs] or _old(root, settings)
    states = {run.job: _state(run) for run in chosen}
    if jobs and not settings.unfinished:
        for run in chosen:
            _check_finished(run, states[run.job])
    lines = {f"{run.path} ({states[run.job]})": run for run in chosen}
    what = f"{count(len(chosen), 'job')}, including jobs that could be resumed"
    for line in to_delete(list(lines), settings, what, nothing=f"No jobs to delete in {root}"):
        run = lines[line]
        is_damaged = states[run.job] == DAMAGED
        remaining = "" if is_damaged else _storage_elsewhere(run)
        _delete(run, damaged=is_damaged)
        console.print(f"Deleted {run.path}")
        if remaining:
            console.print(f"  The job's snapshots and indices remain in {remaining}")


def _state(run: RunDirectory) -> str:
    try:
        return shown_state(run, run.read())
    except UserError:
        return DAMAGED


def _storage_elsewhere(run: RunDirectory) -> str:
    """Where a job with ``--storage`` has its objects, which are not deleted; empty: they are in its folder."""
    storage = run.read().storage
    return "" if not storage or storage == run.storage.as_uri() else display(storage)


def _delete(run: RunDirectory, *, damaged: bool) -> None:
    with run.lock():
        if not damaged:
            remove_temporary(run.job, run.read().temporary)
        run.remove()


def _check_finished(run: RunDirectory, state: str) -> None:
    if state != JobState.SUCCEEDED.value and not run.is_locked() and run.can_be_resumed():
        raise UserError(f"job {run.job} ({state}) can still be resumed", hint="To delete it nevertheless, add --all.")


def to_delete(lines: Sequence[str], settings: CleanSettings, what: str, *, nothing: str) -> Sequence[str]:
    """Which of the chosen lines to delete now: all of them, or none. Asks the user if necessary."""
    console = plain_console()
    if not lines:
        console.print(nothing)
    elif settings.dry_run:
        for line in lines:
            console.print(f"Would delete {line}")
    elif settings.confirmed or not settings.unfinished or _confirm(lines, what):
        return lines
    return ()


def _confirm(lines: Sequence[str], what: str) -> bool:
    """Whether the user agrees to delete something that may be needed. ``UserError`` without a terminal to ask."""
    if not sys.stdin.isatty():
        raise UserError(
            f"clean --all would delete {what}",
            hint="There is no terminal to ask for confirmation. Add --yes to delete them, or --dry_run to list them.",
            usage=True,
        )
    console = plain_console()
    for line in lines:
        console.print(line)
    agreed = typer.confirm(f"Delete {what}?")
    if not agreed:
        console.print("Nothing was deleted.")
    return agreed


def _old(root: Path, settings: CleanSettings) -> list[RunDirectory]:
    return [
        run
        for run in run_directory.run_directories(root)
        if not run.is_locked() and (not run.can_be_resumed() or _is_old(run, settings))
    ]


def _is_old(run: RunDirectory, settings: CleanSettings) -> bool:
    before_s = time.time() - settings.older_than_days * DAY_S
    return (run.path / "job.json").stat().st_mtime <= before_s and (
        settings.unfinished or _state(run) == JobState.SUCCEEDED.value
    )
