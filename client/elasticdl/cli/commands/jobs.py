"""``elasticdl jobs``, ``stop`` and ``scale``."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import print_table
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.handle import Condition, JobEndedError, JobHandle, JobNotFoundError
from elasticdl.cli.jobs.local_handle import shown_state
from elasticdl.cli.jobs.requests import request
from elasticdl.cli.jobs.run_directory import INTERRUPTED, NOTHING_TO_RESUME, RunDirectory
from elasticdl.master.core.pods.state import Pod
from elasticdl.ps.snapshots.job_recovery import has_snapshots
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import PodName, Service, pod_number
from elasticdl.shared.storage import open_store
from elasticdl.shared.words import count, minute

STOP_S_MAX = 90.0
"""Seconds to wait for a job to stop. Its launcher kills leftover processes after 45."""
SLOW_S = 3.0
"""Seconds after which the user reads what the command waits for."""
_POLL_S = 0.1
JOB_COLUMNS = ("job", "state", "submitted", "model", "training data")


def list_jobs(root: Path, *, as_json: bool = False) -> list[dict[str, str]]:
    """Print one line per job on this machine, oldest first."""
    rows: list[tuple[str, ...]] = []
    interrupted, errors, failed = [], [], []
    for run in run_directory.run_directories(root):
        try:
            record = run.read()
        except UserError as error:
            rows.append((run.job, "damaged", "", "", ""))
            errors.append(error)
            continue
        state = shown_state(run, record)
        interrupted += [run] if state == INTERRUPTED else []
        if state == JobState.FAILED.value and record.message:
            failed.append(f"{run.job} has failed: {record.message.splitlines()[0]}")
        submitted = minute(record.created_s)
        model = Path(record.model.rpartition(":")[0]).name
        rows.append((run.job, state, submitted, model, record.training_data))
    if not as_json:
        notes = [f"{run.job} was interrupted: its launcher is not running. {_next_step(run)}" for run in interrupted]
        print_jobs(rows, [*map(str, errors), *failed, *notes], nothing=f"No jobs in {root}")
    return job_facts(rows)


def print_jobs(rows: Sequence[Sequence[str]], notes: Iterable[str], *, nothing: str, title: str = "") -> None:
    """Print rows of ``JOB_COLUMNS`` and notes on them; ``nothing`` if there are none."""
    console = plain_console()
    if not rows:
        console.print(nothing)
        return
    print_table(console, JOB_COLUMNS, rows, title=title, whole="job")
    for line in notes:
        console.print(line)


def job_facts(rows: Sequence[Sequence[str]], **more: str) -> list[dict[str, str]]:
    """Rows of ``JOB_COLUMNS`` as ``jobs --json`` has them."""
    names = [column.replace(" ", "_") for column in JOB_COLUMNS]
    return [{**dict(zip(names, row, strict=True)), **more} for row in rows]


def _next_step(run: RunDirectory) -> str:
    """What to do about an interrupted job. Its log is not read, which would take a nats-server for each job."""
    if not run.can_be_resumed():
        return f"It had not begun to train. To delete it: elasticdl clean {run.arguments}"
    storage = run.read().storage
    with contextlib.suppress(ElasticDLError):  # A resume says what is wrong with the storage.
        if not run.has_log() and not has_snapshots(open_store(storage), storage, run.job):
            return NOTHING_TO_RESUME
    return f"To resume: elasticdl resume {run.arguments}"


def stop(job: JobHandle) -> None:
    """Stop a running job, and wait until it has stopped."""
    condition = job.condition()
    if not condition.is_running:
        raise UserError(
            f"job {job.job} is not running ({condition.state})", hint=f"For details: elasticdl status {job.arguments}"
        )
    _check_not_suspended(job, condition, "stopped")
    try:
        asyncio.run(request(job, StopRequested(reason="elasticdl stop")))
    except JobEndedError:
        pass  # How it has ended is said below.
    except ElasticDLError:
        if not condition.can_terminate:
            raise
        job.terminate()
    console = plain_console()
    try:
        condition = _wait_until_stopped(job, console)
    except JobNotFoundError:
        console.print(f"{job.job}: deleted, because it has no event log that can be reached.")
        return
    console.print(f"{job.job}: {condition.state}")
    failure = condition.message if condition.state == JobState.FAILED.value else ""
    for line in filter(None, (failure, condition.next_step)):
        console.print(line)


def restored_ps(pods: Mapping[PodName, Pod], ps: int, arguments: str) -> list[PodName]:
    """The ps without a place that are not wanted any more: the others restore their parts from their snapshots."""
    restored = []
    for name, pod in sorted(pods.items()):
        if pod.service is not Service.PS or not pod.has_no_place:
            continue
        number = pod_number(name)
        if number < ps:
            fewer = f"To restore that part on others: elasticdl scale {arguments} --ps={number}. " if number else ""
            raise UserError(
                f"{name} is pending, so its part of the model can't move: {pod.pending}",
                hint=f"{fewer}To restart the job with {count(ps, 'parameter server')}: elasticdl stop {arguments}, "
                f"then elasticdl resume {arguments} --num_ps_pods={ps}",
            )
        restored.append(name)
    return restored


def _check_not_suspended(job: JobHandle, condition: Condition, what: str) -> None:
    """Refuse to ask a job for something that it can't do while it is suspended."""
    if suspended := condition.suspension:
        raise UserError(
            f"job {job.job} can't be {what} while its {suspended.process} is suspended",
            hint=f"To continue it: {suspended.remedy}",
        )


def _wait_until_stopped(job: JobHandle, console: Console) -> Condition:
    started_s, told = time.monotonic(), False
    while (condition := job.condition()).is_running:
        _check_not_suspended(job, condition, "stopped")
        waited_s = time.monotonic() - started_s
        if waited_s > STOP_S_MAX:
            raise UserError(
                f"job {job.job} did not stop within {STOP_S_MAX:g} s",
                hint=f"To kill it: {condition.kill_command}. It can be resumed after that.",
            )
        if waited_s > SLOW_S and not told:
            told = True
            console.print(f"Waiting until the workers and parameter servers of {job.job} have stopped.")
        time.sleep(_POLL_S)
    return condition


def scale(job: JobHandle, *, workers: int, ps: int) -> None:
    """Change the number of workers or ps of a running job; 0: unchanged.

    Raises:
        UserError: it is not running, its NATS server is unreachable, a ps has no place, or neither number was given.
    """
    if not workers and not ps:
        raise UserError("give --workers, --ps or both", usage=True)
    condition = job.condition()
    if not condition.is_running:
        hint = condition.next_step
        if condition.state == INTERRUPTED:
            hint = f"For details: elasticdl status {job.arguments}"
        raise UserError(f"job {job.job} is not running ({condition.state}), so it can't be scaled", hint=hint)
    from elasticdl.cli.jobs.folded import recovered

    restored = []
    if ps:
        state = recovered(job, all_evaluations=False).state
        if state.spec and state.spec.has_ring:
            raise UserError(
                f"job {job.job} uses AllreduceStrategy, so the number of its parameter servers can't be changed. "
                "Give --workers.",
                usage=True,
            )
        restored = restored_ps(state.pods, ps, job.arguments)
    _check_not_suspended(job, job.condition(), "scaled")
    asyncio.run(request(job, ScaleRequested(workers=workers, ps=ps)))
    targets = [count(number, noun) for number, noun in ((workers, "worker"), (ps, "parameter server")) if number]
    plain_console().print(f"{job.job}: scaling to {' and '.join(targets)}")
    for name in restored:
        plain_console().print(f"{name} is pending: its part of the model is restored from its last snapshot")
