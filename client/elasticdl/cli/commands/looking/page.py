"""``elasticdl report --html``: a job as one page, without a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.display.report import summary_rows
from elasticdl.cli.display.status import without_processes
from elasticdl.cli.jobs.folded import recovered, wall_time
from elasticdl.cli.jobs.handle import ReadableJob, read_records
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.messages.events import LogRecord, PodExited
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.words import count, size, time_of_day
from elasticdl.views.curves import points
from elasticdl.views.outputs.page import Page, Table, by_name
from elasticdl.views.points import ORDERED_ENDS
from elasticdl.views.report import build
from elasticdl.views.task_times import TIME_COLUMNS, task_times
from elasticdl.views.tasks import TASK_COLUMNS, TaskQuery, task_rows

SLOWEST = 10
LOSSES_MAX = 100


def page_of(job: ReadableJob) -> str:
    """The page of a job as its log is now. Raises ``UserError``: the log holds no job."""
    condition, records = job.condition(), read_records(job)
    state = recovered(job).state
    if state.spec is None:
        raise UserError(f"the event log of {job.job} holds no job")
    found, texts = wall_time(job)
    state = without_processes(state, condition)
    facts = build(state)
    rows, _ = task_rows(state, TaskQuery(slowest=SLOWEST), task_times(records)) if state.training else ([], False)
    curves = by_name((f"{each.run.value}: {each.tag}", float(each.step), each.value) for each in points(records))
    page = Page(
        job=job.job,
        state=facts["state"],
        summary=list(summary_rows(facts)),
        wall_time=found,
        texts=texts,
        curves=curves,
        tables=[
            _losses(records),
            Table(
                title=f"The {SLOWEST} slowest tasks",
                columns=(*TASK_COLUMNS, *TIME_COLUMNS),
                rows=rows,
                numbers=frozenset({0, 1, 4, 7, 8}),
            ),
        ],
        made=f"elasticdl {version('elasticdl')}, {datetime.now():%Y-%m-%d %H:%M}, {count(len(records), 'event')}",
    )
    return page.html()


def _losses(records: Sequence[LogRecord]) -> Table:
    rows = []
    for record in records:
        event = record.envelope.event
        if isinstance(event, PodExited) and event.cause not in ORDERED_ENDS:
            running = ", ".join(str(each.task) for each in event.running_batches)
            time = time_of_day(record.envelope.time_s)
            rows.append((f"#{record.seq}", time, event.pod, event.cause.value, str(event.exit_code), running))
    title = f"Lost processes (the last {LOSSES_MAX} of {len(rows)})" if len(rows) > LOSSES_MAX else "Lost processes"
    columns = ("event", "time", "process", "cause", "exit code", "was computing")
    return Table(title=title, columns=columns, rows=rows[-LOSSES_MAX:])


def report_page(job: ReadableJob, path: Path) -> None:
    """Write the page."""
    text = page_of(job)
    with file_errors(f"can't write {path}"), replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
    plain_console().print(f"Wrote the report of {job.job} to {path} ({size(path.stat().st_size)}).")
