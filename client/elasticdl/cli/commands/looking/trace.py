"""``elasticdl trace``: a job as a file for Perfetto."""

from __future__ import annotations

import gzip
from pathlib import Path

from elasticdl.cli.commands.events import EventQuery, chosen_records
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.words import size
from elasticdl.views.outputs.trace import trace_of


def trace(job: ReadableJob, path: Path, query: EventQuery) -> None:
    """Write the trace of the log, or of the part between two points. A name that ends with .gz is compressed."""
    records = chosen_records(job, query)
    if not records:
        raise UserError(f"the event log of {job.job} has no event there")
    found = trace_of(records)
    with file_errors(f"can't write {path}"), replacing(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                for piece in found.pieces(job.job):
                    packed.write(piece.encode())
        else:
            for piece in found.pieces(job.job):
                file.write(piece.encode())
    console = plain_console()
    console.print(f"Wrote the trace of {job.job} to {path} ({size(path.stat().st_size)}).")
    console.print("To see it: open the file in ui.perfetto.dev or chrome://tracing.")
