"""What the launcher and a process that checks or exports a job's model exchange: files in a folder of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.shared.job.spec import BestModel, ExportTables, InitialModel, JobSpec
from elasticdl.shared.messages.json_codec import JsonCodec
from elasticdl.shared.storage.atomic import replace_text

FOLDER_VARIABLE = "ELASTICDL_MODEL_CHECK"
"""Environment variable with the folder of a check."""
NUMBER_VARIABLE = "ELASTICDL_MODEL_CHECK_NUMBER"
"""Environment variable with the number of the process: 0 tries the model, 1 builds it to be compared and exports it."""
SPEC_FILE = "spec"
"""The encoded specification of the job."""
_CONVERSION = "conversion"
_TRIAL_EXPORT = "trial-export"
MODEL_FILE = "model.npz"
"""Export: the version to write; see ``elasticdl.shared.model.whole_model``."""
SIGNATURE_FILE = "signature.json"
"""Export: the signature of the version; see ``elasticdl.shared.model.signature``."""
PARTS_FILE = "parts.json"
"""Export with tables in Parquet: the snapshots that have the rows, as JSON of (URI, partitions) pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """The result of one process.

    Attributes:
        error: why the model can't be trained or exported; empty if it can.
        notes: what the user should know about the model.
        unloadable: which exported files don't load, why, and what loads, found by trying.
        fingerprint: of the model, encoded; empty after an error.
        best: the model that one of them restores at the end; None: none does.
        tensorboard_log_dir: URI of the folder that one of them names for event files; empty: none does.
        adapted: URIs of the states of layers that were adapted to the training data.
        export_tables: where the tables of the exported model will be; None: it is not known.
        initial: the trained model that the job starts from, with what was found of it; None if absent.
    """

    error: str = ""
    notes: tuple[str, ...] = ()
    unloadable: tuple[str, ...] = ()
    fingerprint: bytes = b""
    callbacks: tuple[str, ...] = ()
    best: BestModel | None = None
    tensorboard_log_dir: str = ""
    adapted: tuple[str, ...] = ()
    initial: InitialModel | None = None
    export_tables: ExportTables | None = None

    def write(self, folder: Path, number: int) -> None:
        """Write the result of a process; it appears complete or not at all."""
        replace_text(_path(folder, number), json.dumps(_RESULT.dump(self)))

    @classmethod
    def read(cls, folder: Path, number: int) -> ModelCheck | None:
        """The result of a process; None before it has one."""
        try:
            result: ModelCheck = _RESULT.load(json.loads(_path(folder, number).read_text()))
        except FileNotFoundError:
            return None
        return result

    def apply(self, spec: JobSpec) -> JobSpec:
        """The job with what was found of its model."""
        model = replace(spec.model, fingerprint=self.fingerprint, adapted=self.adapted)
        return replace(
            spec,
            model=model,
            callbacks=self.callbacks,
            best=self.best or spec.best,
            tensorboard_log_dir=spec.tensorboard_log_dir or self.tensorboard_log_dir,
            initial=self.initial or spec.initial,
            export_tables=self.export_tables or spec.export_tables,
        )


_RESULT = JsonCodec(ModelCheck)


def write_phase(folder: Path, number: int, phase: str) -> None:
    """Store which user code a process runs: if it hangs or crashes, the launcher names it."""
    _phase_path(folder, number).write_text(phase)


def read_phase(folder: Path, number: int) -> str:
    """The user code that a process runs or ran at its end, as ``importing model.py``; empty: none, or unknown."""
    try:
        return _phase_path(folder, number).read_text()
    except FileNotFoundError:
        return ""


def begin_conversion(folder: Path) -> None:
    """Record that the model is checked, and that its initial weights are being converted."""
    (folder / _CONVERSION).touch()


def is_converting(folder: Path) -> bool:
    """Whether process 0 has checked the model and converts its initial weights, however large they are."""
    return (folder / _CONVERSION).exists()


@contextmanager
def trying_export(folder: Path, number: int) -> Iterator[None]:
    """Record in the block that a process tries to export the model: it calls code that no other step calls."""
    mark = folder / f"{_TRIAL_EXPORT}-{number}"
    mark.touch()
    yield
    mark.unlink()


def was_exporting(folder: Path, number: int) -> bool:
    """Whether a process that has ended was trying to export the model."""
    return (folder / f"{_TRIAL_EXPORT}-{number}").exists()


def pipe_of(folder: Path, number: int) -> Path:
    """The named pipe of a process that waits to become a worker; without it, the process exits after its check."""
    return folder / f"environment-{number}"


def _phase_path(folder: Path, number: int) -> Path:
    return folder / f"phase-{number}"


def _path(folder: Path, number: int) -> Path:
    return folder / f"result-{number}.json"
