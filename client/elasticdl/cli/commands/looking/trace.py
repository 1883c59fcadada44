"""``elasticdl trace``: a job as a file for Perfetto."""

from __future__ import annotations

import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elasticdl.cli.commands.events import EventQuery, chosen_records
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.shared.words import count, size
from elasticdl.views.outputs.otlp import otlp_trace
from elasticdl.views.outputs.perfetto import PerfettoTrace
from elasticdl.views.outputs.trace import trace_of

POST_S_MAX = 30.0
"""Seconds in which a collector has to answer."""


def send_trace(job: ReadableJob, url: str, query: EventQuery) -> None:
    """Send the trace of the log, or of the part between two points, to an OpenTelemetry collector.

    Raises:
        UserError: the collector can't be reached, or refuses it.
    """
    records = chosen_records(job, query)
    if not records:
        raise UserError(f"the event log of {job.job} has no event there")
    address = url.rstrip("/") + ("" if url.rstrip("/").endswith("/v1/traces") else "/v1/traces")
    if not address.startswith(("http://", "https://")):
        raise UserError(f"--otlp={url} is no address", hint="Give one such as http://localhost:4318.", usage=True)
    spans = 0
    for body in otlp_trace(job.job, records).requests():
        _post(address, body)
        spans += sum(len(scope["spans"]) for each in body["resourceSpans"] for scope in each["scopeSpans"])
    plain_console().print(f"Sent the trace of {job.job} to {address}: {count(spans, 'span')}.")


def _post(address: str, body: dict[str, Any]) -> None:
    data = gzip.compress(json.dumps(body).encode(), 1)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    request = urllib.request.Request(address, data, headers, method="POST")  # noqa: S310  The scheme was checked.
    try:
        with urllib.request.urlopen(request, timeout=POST_S_MAX):  # noqa: S310
            pass
    except urllib.error.HTTPError as error:
        said = error.read(1000).decode(errors="replace").strip()
        raise UserError(f"{address} refuses the trace: {error.code} {error.reason} {said}".rstrip()) from error
    except (urllib.error.URLError, OSError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise UserError(f"can't reach {address}: {reason}", hint="Is the collector running?") from error


def trace(job: ReadableJob, path: Path, query: EventQuery) -> None:
    """Write the trace of the log, or of the part between two points.

    A name that ends with .json is in Chrome's format, any other in Perfetto's. With .gz after that it is compressed.
    """
    records = chosen_records(job, query)
    if not records:
        raise UserError(f"the event log of {job.job} has no event there")
    name = path.with_suffix("") if path.suffix == ".gz" else path
    pieces: Iterator[bytes] = PerfettoTrace().pieces(records)
    if name.suffix == ".json":
        pieces = map(str.encode, trace_of(records).pieces(job.job))
    with file_errors(f"can't write {path}"), replacing(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
                packed.writelines(pieces)
        else:
            file.writelines(pieces)
    console = plain_console()
    console.print(f"Wrote the trace of {job.job} to {path} ({size(path.stat().st_size)}).")
    console.print("To see it: open the file in ui.perfetto.dev.")
