"""``elasticdl doctor JOB``: what is wrong with a job, and one file with all that a bug report needs."""

from __future__ import annotations

import json
import platform
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from elasticdl.cli.commands.events import write_export
from elasticdl.cli.commands.looking.page import page_of
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.output import plain, print_json
from elasticdl.cli.display.status import slow_lines, status_facts, without_processes
from elasticdl.cli.jobs.exported import inspected
from elasticdl.cli.jobs.folded import recovered, wall_time
from elasticdl.cli.jobs.handle import Condition, PodLogs, ReadableJob, read_records
from elasticdl.master.core import State
from elasticdl.shared.errors import ElasticDLError, file_errors
from elasticdl.shared.messages.events import JobSubmitted, PodExited
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.words import count, duration, size
from elasticdl.views.files.exported_log import without_passwords, without_secrets
from elasticdl.views.history import validation_warnings
from elasticdl.views.incidents import incident_lines, unreadable_lines
from elasticdl.views.points import ORDERED_ENDS
from elasticdl.views.report import build
from elasticdl.views.wall_time.causes import USEFUL, WORDS
from elasticdl.views.wall_time.values import WallTime, wall_time_facts

LOG_LINES = 2000
"""Last lines of each process' log in the file."""
_PERCENT_MIN = 5.0
"""Causes with more of the wall time are named."""


def diagnose(job: ReadableJob, path: Path | None, *, as_json: bool = False) -> bool:
    """Print what is wrong with a job, and write the file.

    Args:
        path: the file; None: ``JOB-doctor.zip`` in the working directory.

    Returns:
        Whether nothing is wrong.
    """
    console, condition = plain_console(), job.condition()
    path = path or Path(f"{job.job}-doctor.zip")
    try:
        state = recovered(job).state
        found, _ = wall_time(job)
        problems = list(_problems(job, condition, state)) if state.spec is not None else ["the event log holds no job"]
        notes, advice = list(_notes(job, state)), list(_advice(found))
    except ElasticDLError as error:  # Then the file has what is known without the log.
        state, problems, notes, advice = None, [f"the event log can't be read: {error}"], [], []
    contents = _write(job, condition, state, path)
    if as_json:
        facts = {"job": job.job, "problems": problems, "notes": notes, "advice": advice}
        facts |= {"file": str(path), "contents": contents}
        print_json(console, facts)
        return not problems
    for line in problems or ["nothing is wrong with this job"]:
        console.print(f"{'problem' if problems else 'fine   '}  {line}")
    for line in notes:
        console.print(f"note     {line}")
    for line in advice:
        console.print(f"advice   {line}")
    with file_errors(f"can't read {path}"):
        written = size(path.stat().st_size)
    console.print(f"Wrote {count(len(contents), 'file')} to {path} ({written}) for a bug report.")
    console.print("Secrets of the settings are left out.")
    if any(name.startswith("logs/") for name in contents):
        console.print("Look through logs/ for secrets that your code has printed.")
    return not problems


def _problems(job: ReadableJob, condition: Condition, state: State) -> Iterator[str]:
    if state.failure:
        yield f"it failed: {state.failure.message}"
    elif condition.is_ended and not state.is_final:
        yield f"it {condition.end}"
    if condition.waiting:
        yield condition.waiting
    if condition.is_running:
        yield from slow_lines(state, state.now_s)
    yield from (f"{name} is pending: {pod.pending}" for name, pod in sorted(state.pods.items()) if pod.pending)
    for ref, failures in state.failures.items():
        yield f"{ref} failed {count(len(failures), 'time')}: elasticdl task {inspected(job)} {ref.number}"
    yield from validation_warnings(state)
    if state.closing.audit and not state.closing.audit.exact:
        yield "the audit is not exact"


def _notes(job: ReadableJob, state: State) -> Iterator[str]:
    """What the job has survived."""
    lost: dict[str, list[int]] = {}
    for record in read_records(job):
        event = record.envelope.event
        if isinstance(event, PodExited) and event.cause not in ORDERED_ENDS:
            lost.setdefault(f"{event.pod} ended: {event.cause.value}", []).append(record.seq)
    for text, numbers in lost.items():
        yield f"{text} ({count(len(numbers), 'time')}: {', '.join(f'#{seq}' for seq in numbers[:5])})"
    yield from unreadable_lines(state)
    yield from incident_lines(state)


def _advice(found: WallTime) -> Iterator[str]:
    for part in found.parts:
        words, percent = WORDS[part.cause], found.percent(part.seconds)
        if part.cause not in USEFUL and words.advice and percent >= _PERCENT_MIN:
            yield f"{words.title} took {duration(part.seconds)} ({percent:.0f}%): {words.advice}"


def _write(job: ReadableJob, condition: Condition, state: State | None, path: Path) -> list[str]:
    """Write the file; returns the names of what is in it."""
    with (
        file_errors(f"can't write {path}"),
        replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        bundle.writestr("versions.json", _json(_versions()))
        if state is not None and state.spec is not None:
            bundle.writestr("status.json", _json(status_facts(job.job, condition, state)))
            bundle.writestr("report.json", _json(build(without_processes(state, condition))))
            bundle.writestr("why.json", _json(wall_time_facts(wall_time(job)[0])))
            bundle.writestr("settings.json", _json(_settings(job)))
            bundle.writestr("report.html", page_of(job))
            with tempfile.TemporaryDirectory() as folder:
                exported = Path(folder) / "events.edl"
                write_export(job, exported, anonymize=False)
                bundle.write(exported, "events.edl")
        for name, text in _logs(job):
            bundle.writestr(f"logs/{name}.log", text)
        return bundle.namelist()


def _logs(job: ReadableJob) -> Iterator[tuple[str, str]]:
    """The end of each process' log. An exported log comes without them."""
    logs: PodLogs | None = getattr(job, "logs", None)
    if logs is None:
        return
    for name in logs.pods():
        try:
            lines, _ = logs.read([name], LOG_LINES)
        except ElasticDLError as error:
            yield name, f"can't be read: {error}\n"
            continue
        yield name, "".join(f"{without_passwords(line)}\n" for _, line in lines)


def _settings(job: ReadableJob) -> Sequence[Any]:
    """The job as it was submitted, without secrets."""
    records = read_records(job, until=20)
    submitted = [record.envelope for record in records if isinstance(record.envelope.event, JobSubmitted)]
    return [without_secrets(envelope).event for envelope in submitted]


def _versions() -> dict[str, Any]:
    packages = {each.metadata["Name"]: each.version for each in distributions() if each.metadata["Name"]}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "packages": dict(sorted(packages.items(), key=lambda each: each[0].lower())),
    }


def _json(value: Any) -> str:
    return json.dumps(plain(value), indent=2, allow_nan=False) + "\n"
