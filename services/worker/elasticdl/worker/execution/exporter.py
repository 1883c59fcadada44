"""Writes the trained model to the job's output, on disk or in object storage, and saves evaluated versions of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.owner import OutputOwner
from elasticdl.shared.exported.writing import Parts, TablesExport, delete_tables, served_parts
from elasticdl.shared.job.model_file import WEIGHTS_FILE
from elasticdl.shared.model.whole_model import RowsFunction
from elasticdl.shared.storage import join, open_store, scheme_of
from elasticdl.shared.storage.uris import local_path
from elasticdl.worker.core.commands import ExportModel
from elasticdl.worker.execution.saved_models import SavedModels
from elasticdl.worker.ports import Floats, Ids
from elasticdl.worker.ps_client import PsClient
from elasticdl.worker.ps_client.dense_and_tables import DenseAndTables
from elasticdl.worker.ps_client.requests import NO_INSTANCES, Instances

WriteModel = Callable[[Floats, RowsFunction, Path], object]
"""(dense values, (table, ids) -> rows, local folder or file) -> the files are in the folder, or the file is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportWatch:
    """Follows an export, so that one that moves or waits does not count as hanging.

    Attributes:
        progress: called whenever a part of the model has arrived or was written.
        waiting: makes the block in which the worker waits for ps or storage.
    """

    progress: Callable[[], None] = lambda: None
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWriter:
    """Writes a model with the values that it gets.

    Attributes:
        write_file: writes one file, of the kind that its name says.
        with_tables: (dense values, snapshots with the rows) -> an export with tables in Parquet; None: the files of the
            model hold its tables.
    """

    write: WriteModel
    write_file: WriteModel
    with_tables: Callable[[Floats, Parts], TablesExport] | None = None


class Exporter:
    """Pulls the whole model and writes it."""

    def __init__(
        self,
        *,
        ps: PsClient | DenseAndTables,
        saved: SavedModels,
        writer: ModelWriter,
        output: str,
        owner: OutputOwner,
        watch: ExportWatch,
    ) -> None:
        self._ps = ps
        self._saved = saved
        self._writer = writer
        self._output = output
        self._owner = owner
        self._progress, self._waiting = watch.progress, watch.waiting
        self._watch = watch

    def save(self, pin: int, keep: int) -> None:
        """Save an evaluation's pinned model, as ``SavedModels.save``. Raises ``PinLostError`` if it is gone."""
        sizes = {table.name: table.input_dim for table in self._ps.signature.tables}
        self._saved.save(pin, *self._pull(pin), sizes, keep)

    def _pull(self, pin: int, only: Instances = NO_INSTANCES, *, averages: bool = False) -> tuple[Floats, RowsFunction]:
        with self._waiting():
            pulled = self._ps.pull({}, pin=pin, only=only, averages=averages)
        dense = pulled.dense.copy()
        pulled.release()

        def rows_of(table: str, ids: Ids) -> Floats:
            self._progress()
            with self._waiting():
                return self._ps.pull_rows(table, ids, pin=pin, only=only)

        return dense, rows_of

    def export(self, command: ExportModel) -> None:
        """Export the model, replacing what is there.

        As after ``fit()``, its weights are the averages if the optimizer keeps averages. A version that was saved is
        the one that was evaluated.

        Raises:
            PinLostError: the audited model is gone.
            PermanentError: another job has written its model there since this job started.
        """
        version, output = command.version, command.output or self._output
        with self._waiting():
            self._owner.check(output)
        self._export(command, version, output)
        with self._waiting():
            self._owner.note(output)

    def _export(self, command: ExportModel, version: int, output: str) -> None:
        if version:
            with self._waiting():
                dense, rows_of = self._saved.load(version)
        else:
            dense, rows_of = self._pull(0, command.audited, averages=True)
        if self._writer.with_tables and not version:
            tables = self._writer.with_tables(dense, served_parts(command.snapshots))
            with self._waiting():
                tables.write(output, self._progress)
            return
        if command.weights_first:
            self._write_one(join(output, WEIGHTS_FILE), partial(self._writer.write_file, dense, rows_of))
        write_output(output, partial(self._writer.write, dense, rows_of), self._watch)

    def weights(self, instances: Instances) -> tuple[Floats, RowsFunction]:
        """The current model's dense weights, and what reads rows of its tables; errors as ``write_file``."""
        return self._pull(0, instances)

    def write_summaries(self, uri: str, instances: Instances, encode: Callable[[Floats, RowsFunction], bytes]) -> None:
        """Write what is computed from the current model to one file; arguments and errors as ``write_file``."""
        content = encode(*self._pull(0, instances))
        with self._waiting():
            open_store(uri).write(uri, content)

    def write_file(self, uri: str, instances: Instances, write: WriteModel) -> None:
        """Write the current model to one file, on disk or in object storage, replacing what is there.

        Args:
            write: writes a local file, which is complete before it takes its name.

        Raises:
            PinLostError: the model is gone.
        """
        self._write_one(uri, partial(write, *self._pull(0, instances)))

    def _write_one(self, uri: str, write: Callable[[Path], object]) -> None:
        if scheme_of(uri) == "file":
            write(local_path(uri))
            return
        with tempfile.TemporaryDirectory(prefix="elasticdl-checkpoint-") as folder:
            file = Path(folder, uri.rpartition("/")[2])
            write(file)
            with self._waiting():
                open_store(uri).write(uri, file)


def write_output(output: str, write: Callable[[Path], object], watch: ExportWatch | None = None) -> None:
    """Write files to a folder on disk or in object storage, replacing what is there.

    Args:
        watch: see ``ExportWatch``; None: the export is not followed.
    """
    watch = watch or ExportWatch()
    if scheme_of(output) == "file":
        write(local_path(output))
    else:
        with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as name:
            folder = Path(name)
            try:
                write(folder)
            except UserError:
                with watch.waiting():
                    _upload(folder, output, watch.progress)  # The weights, if nothing else could be written.
                raise
            with watch.waiting():
                _upload(folder, output, watch.progress)
    with watch.waiting():
        delete_tables(output)


def _upload(folder: Path, output: str, progress: Callable[[], None]) -> None:
    """Objects are replaced one by one; those at the top, which name the model, last."""
    store = open_store(output)
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -len(path.parts))
    for path in files:
        store.write(join(output, *path.relative_to(folder).parts), path)
        progress()
