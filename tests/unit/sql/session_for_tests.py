"""What statements run with in tests: jobs that end at once, and a display that remembers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from elasticdl.shared.storage import join, open_store, to_uri
from elasticdl.sql.jobs import EndedJob, JobOfTraining
from elasticdl.sql.parsing import parse
from elasticdl.sql.results import Result, Table
from elasticdl.sql.run import Session


@dataclass
class Jobs:
    """See ``elasticdl.sql.jobs.Jobs``: jobs that end at once, as ``end`` says."""

    end: BaseException | None = None
    started: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    known: dict[str, JobOfTraining] = field(default_factory=dict)

    def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
        self.started.append((command, flags))
        assert report.parent.is_dir()
        if self.end is not None:
            raise self.end
        output = to_uri(str(flags.get("output", "none")))
        if command == "train":
            write(join(output, "model.keras"), b"a model")
        if command == "predict":
            write(join(output, "part-0.parquet"), predictions(str(flags["prediction_data"])))
        return EndedJob(job=f"{flags['job_name']}-1", metrics={"val_loss": 0.5, "r2": 0.25})

    def find(self, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
        return self.known.get(output)


@dataclass
class Display:
    """See ``elasticdl.sql.results.Display``."""

    lines: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        self.lines.append(text)

    def table(self, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        self.lines += [title, *("  ".join(row) for row in rows)]


def write(uri: str, data: bytes) -> None:
    open_store(uri).write(uri, data)


def predictions(place: str) -> bytes:
    """The predictions 0, 1, 2 ... for the rows of a folder."""
    store, file = open_store(place), io.BytesIO()
    parts = [store.read(each.uri) for each in store.list(to_uri(place).rstrip("/") + "/")]
    rows = sum(pq.read_metadata(io.BytesIO(part)).num_rows for part in parts)
    pq.write_table(pa.table({"prediction": [float(row) for row in range(rows)]}), file)
    return file.getvalue()


def run(session: Session, text: str) -> list[Result]:
    return [session.run(parsed) for parsed in parse(text)]


def jobs_of(session: Session) -> Jobs:
    assert isinstance(session.jobs, Jobs)
    return session.jobs


def shown(session: Session) -> list[str]:
    assert isinstance(session.display, Display)
    return session.display.lines


def rows(result: Result) -> tuple[tuple[Any, ...], ...]:
    assert isinstance(result.table, Table)
    return result.table.rows
