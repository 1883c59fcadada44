"""``elasticdl clean --namespace``: deletes the event logs of jobs whose Kubernetes objects are gone."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Mapping, Sequence

from elasticdl.cli.commands.clean import DAY_S, CleanSettings, to_delete
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.run_directory import INTERRUPTED, named
from elasticdl.cli.kubernetes.lookup import connect, jobs_in
from elasticdl.cli.kubernetes.nats_route import reachable_url
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.nats_bus import StoredLog
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.names import NAMESPACE_OBJECT
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.names import JobId
from elasticdl.shared.words import count, size


def clean_namespace(namespace: str, jobs: Sequence[str], settings: CleanSettings) -> None:
    """Delete event logs from the NATS server of a namespace.

    Args:
        jobs: ids or names; empty: all jobs that are old enough.

    Raises:
        UserError: a job still has its Kubernetes Job, is running or did not finish, or the deletion needs a
            confirmation and there is no terminal.
    """
    with contextlib.closing(connect(namespace)) as api, reachable_url(api, NAMESPACE_OBJECT) as url:
        present = {JobId(job["metadata"]["name"]) for job in jobs_in(api)}
        clean_logs(url, present, jobs, settings, f"namespace {api.namespace}")


def clean_logs(url: str, present: Collection[JobId], jobs: Sequence[str], settings: CleanSettings, place: str) -> None:
    """Delete event logs from a NATS server."""
    logs = asyncio.run(nats_bus.stored_logs(url))
    chosen = [_find(logs, present, job, place) for job in jobs] or _old(logs, present, settings)
    states = asyncio.run(_states(url, chosen))
    if jobs and not settings.unfinished:
        for log in chosen:
            _check_finished(log, states[log.job])
    chosen = [log for log in chosen if settings.unfinished or states[log.job] == JobState.SUCCEEDED.value]
    lines = {f"the event log of {log.job} ({states[log.job]}, {size(log.size_bytes)})": log for log in chosen}
    what = f"{count(len(chosen), 'event log')}, including those of jobs that did not finish"
    for line in to_delete(list(lines), settings, what, nothing=f"No event logs to delete in {place}"):
        asyncio.run(nats_bus.remove_job(url, lines[line].job))
        plain_console().print(f"Deleted {line}")


def _find(logs: Sequence[StoredLog], present: Collection[JobId], job: str, place: str) -> StoredLog:
    """The event log of a job that is given by id or name."""
    by_job = {log.job: log for log in logs}
    found = named(job, list(by_job))
    if found is None:
        raise UserError(f"there is no event log of a job {job!r} in {place}")
    if found in present:
        raise UserError(
            f"the Kubernetes Job of {found} exists, so its event log stays",
            hint=f"To delete the objects of the job first: kubectl delete job {found}",
        )
    if by_job[found].is_followed:
        raise UserError(
            f"a process follows the event log of {found}",
            hint="Either the job runs, perhaps from another namespace or machine, or a command shows it.",
        )
    return by_job[found]


def _old(logs: Sequence[StoredLog], present: Collection[JobId], settings: CleanSettings) -> list[StoredLog]:
    before_s = time.time() - settings.older_than_days * DAY_S
    return [log for log in logs if log.job not in present and not log.is_followed and log.last_s <= before_s]


async def _states(url: str, logs: Sequence[StoredLog]) -> Mapping[JobId, str]:
    from elasticdl.views import reading

    states = {}
    for log in logs:
        async with await nats_bus.connect(url, log.job) as bus:
            state = (await reading.exact(bus)).state
        states[log.job] = state.job_state.value if state.is_final else INTERRUPTED
    return states


def _check_finished(log: StoredLog, state: str) -> None:
    if state != JobState.SUCCEEDED.value:
        raise UserError(
            f"job {log.job} ({state}) did not finish",
            hint="Its event log shows why. To delete the log nevertheless, add --all.",
        )
