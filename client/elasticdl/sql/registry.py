"""Models by name and version: what statements train, and others use.

ROOT/NAME/versions/3.json      a version; it exists or not, and is never changed
          trainings/ID/        a training: training.json, the snapshot of its rows, its columns, and the exported model
          dropped/3            its number is never used again

A version names the training that made it. A training that was interrupted has no version; ``complete`` registers it
once its job was resumed and has succeeded.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticdl.shared.errors import PermanentError, UserError, check_format, file_errors
from elasticdl.shared.storage.atomic import PARTIAL_SUFFIX, replacing
from elasticdl.shared.words import did_you_mean
from elasticdl.sql.statements import ModelName

FORMAT = 1
NAME_CHARS_MAX = 120
TRAINING = "training.json"
_NAME = re.compile(r"\w[\w.\-]*")
_KNOWN_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What ``training.json`` says of a training, and a version of its model.

    Attributes:
        model: the name under which it is registered.
        sql: the statement.
        database: URL without credentials.
        created_s: when the training began, seconds since the epoch.
        network: what was trained, such as ``DNNClassifier``; empty: derived from the data.
        model_def: value of ``--model_def``.
        features: file with the fitted columns, within the training's folder.
        task: ``classification`` or ``regression``.
        label: columns.
        rows: of the SELECT.
        columns: name, use and reason of each.
        options: of the job, as the statement and the data gave them.
    """

    model: str
    sql: str
    database: str = ""
    created_s: float = 0.0
    network: str = ""
    model_def: str = ""
    features: str = ""
    task: str = ""
    label: tuple[str, ...] = ()
    rows: int = 0
    columns: tuple[tuple[str, str, str], ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """A registered model.

    Attributes:
        job: the job that trained it.
        metrics: of its last evaluation.
        training: folder of the training within that of the model.
    """

    record: TrainingRecord
    version: int
    job: str
    registered_s: float
    training: str
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.record.model}@{self.version}"


@dataclass(frozen=True, slots=True)
class Training:
    """The folder of a training."""

    folder: Path

    @property
    def export(self) -> Path:
        """The exported model."""
        return self.folder / "model"

    def read(self) -> TrainingRecord:
        """Raises ``UserError``: there is no such training, or it is damaged."""
        path = self.folder / TRAINING
        try:
            return _record(json.loads(path.read_text()))
        except FileNotFoundError as error:
            raise UserError(
                f"{self.folder} holds no model of a statement: {TRAINING} is missing",
                hint="Give the name of a model, as SHOW MODELS lists it, or the folder of its training.",
            ) from error
        except (ValueError, TypeError, OSError) as error:
            raise UserError(f"{path} is damaged: {error}") from error

    def write(self, record: TrainingRecord) -> None:
        """Replace ``training.json``."""
        with file_errors(f"{self.folder} can't be written", PermanentError), replacing(self.folder / TRAINING) as file:
            file.write(_json(asdict(record)))


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """How the job of a training ended: its id, and its metrics."""

    job: str
    metrics: Mapping[str, float]


class Registry:
    """The models under a folder, which need not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, model: str) -> Training:
        """A new folder for a training.

        Raises:
            UserError: the name of the model can't be the name of a folder.
        """
        check_name(model)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"
        folder = self.root / model / "trainings" / name
        with file_errors(f"{folder} can't be created", PermanentError):
            folder.mkdir(parents=True)
        return Training(folder)

    def discard(self, training: Training) -> None:
        """Delete a training that has come to nothing, and the folder of its model if nothing else is there."""
        shutil.rmtree(training.folder, ignore_errors=True)
        for folder in (training.folder.parent, training.folder.parent.parent):
            with suppress(OSError):
                folder.rmdir()

    def register(self, training: Training, finished: FinishedJob) -> ModelVersion:
        """Make the model of a training a version: the next one. A crash leaves it registered or not."""
        record = training.read()
        folder = self.root / record.model / "versions"
        version = ModelVersion(
            record=record,
            version=0,
            job=finished.job,
            registered_s=time.time(),
            training=training.folder.name,
            metrics=dict(finished.metrics),
        )
        with file_errors(f"{folder} can't be written", PermanentError):
            folder.mkdir(exist_ok=True)
            while True:
                version = replace(version, version=self._last_number(record.model) + 1)
                path = folder / f"{version.version}.json"
                partial = folder / f".{version.version}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}"
                with replacing(partial) as file:
                    file.write(_json(asdict(version)))
                try:
                    os.link(partial, path)  # Fails if another process has taken the number; a rename would not.
                except FileExistsError:
                    continue
                finally:
                    partial.unlink(missing_ok=True)
                return version

    def complete(self, model: str, finished: Callable[[Training], FinishedJob | None]) -> list[Training]:
        """Register trainings whose jobs have succeeded since; returns those that are not finished.

        Args:
            finished: how the job of a training has ended; None: it is not, or not successfully.
        """
        left = []
        for training in self._unregistered(model):
            if (end := finished(training)) is not None:
                self.register(training, end)
            else:
                left.append(training)
        return left

    def names(self) -> list[str]:
        """Names of models, with those of which only trainings exist, sorted."""
        with suppress(OSError):
            return sorted(path.name for path in self.root.iterdir() if not path.name.startswith("."))
        return []

    def versions(self, model: str) -> list[ModelVersion]:
        """All versions, oldest first."""
        found = [self._read(path) for path in (self.root / model / "versions").glob("[0-9]*.json")]
        return sorted(found, key=lambda each: each.version)

    def find(self, name: ModelName) -> ModelVersion:
        """A version: the newest if the name gives none.

        Raises:
            UserError: there is none.
        """
        model = name.name.text
        versions = self.versions(model) if _NAME.fullmatch(model) else []
        if not versions:
            raise self._unknown(model)
        if name.version is None:
            return versions[-1]
        for each in versions:
            if each.version == name.version:
                return each
        numbers = ", ".join(str(each.version) for each in versions[-_KNOWN_SHOWN:])
        raise UserError(f"the model {model} has no version {name.version}", hint=f"Its versions: {numbers}.")

    def training(self, version: ModelVersion) -> Training:
        """The folder of the training of a version."""
        return Training(self.root / version.record.model / "trainings" / version.training)

    def drop(self, name: ModelName) -> int:
        """Delete a version, or a whole model; returns the number of versions.

        Raises:
            UserError: there is none.
        """
        folder = self.root / name.name.text
        if name.version is None:
            if not _NAME.fullmatch(name.name.text) or not folder.is_dir():
                raise self._unknown(name.name.text)
            number = len(self.versions(name.name.text))
            dropped = self.root / f".dropped-{secrets.token_hex(6)}"
            with file_errors(f"{folder} can't be deleted", PermanentError):
                folder.rename(dropped)
            shutil.rmtree(dropped, ignore_errors=True)
            return number
        version = self.find(name)
        with file_errors(f"{name} can't be deleted", PermanentError):
            (folder / "dropped").mkdir(exist_ok=True)
            (folder / "dropped" / str(version.version)).touch()
            (folder / "versions" / f"{version.version}.json").unlink()
        shutil.rmtree(self.training(version).folder, ignore_errors=True)
        return 1

    def _last_number(self, model: str) -> int:
        folder = self.root / model
        names = [path.stem for path in (*folder.glob("versions/*.json"), *folder.glob("dropped/*"))]
        return max((int(name) for name in names if name.isdecimal()), default=0)

    def _unregistered(self, model: str) -> Iterator[Training]:
        known = {each.training for each in self.versions(model)}
        for folder in sorted((self.root / model / "trainings").glob("*")):
            if folder.name not in known and (folder / TRAINING).is_file():
                yield Training(folder)

    def _read(self, path: Path) -> ModelVersion:
        try:
            facts = json.loads(path.read_text())
            check_format(str(path), facts.get("format"), FORMAT)
            record = _record(facts.pop("record"))
            known = {name: value for name, value in facts.items() if name in ModelVersion.__dataclass_fields__}
            return ModelVersion(record=record, **known)
        except (ValueError, TypeError, KeyError, OSError) as error:
            raise UserError(f"{path} is damaged: {error}", hint="Restore a copy, or delete this file.") from error

    def _unknown(self, model: str) -> UserError:
        known = [name for name in self.names() if name != model]  # No training of this one has succeeded.
        listed = f"Registered models: {', '.join(known[:_KNOWN_SHOWN])}." if known else "No model is registered yet."
        return UserError(f"there is no model {model!r}", hint=did_you_mean(model, known, listed))


def check_name(model: str) -> None:
    """Raises ``UserError``: models can't have this name."""
    if not _NAME.fullmatch(model) or len(model) > NAME_CHARS_MAX or model != model.strip():
        raise UserError(
            f"{model[:NAME_CHARS_MAX]!r} can't be the name of a model",
            hint="Names have letters, digits, '_', '-' and '.', and begin with a letter or a digit.",
        )


def _json(facts: Mapping[str, Any]) -> bytes:
    return (json.dumps({"format": FORMAT} | dict(facts), indent=2, ensure_ascii=False) + "\n").encode()


def _record(facts: Mapping[str, Any]) -> TrainingRecord:
    if "format" in facts:
        check_format(TRAINING, facts["format"], FORMAT)
    known = {name: value for name, value in facts.items() if name in TrainingRecord.__dataclass_fields__}
    for name in ("label", "columns"):
        if name in known:
            known[name] = tuple(tuple(each) if isinstance(each, list) else each for each in known[name])
    return TrainingRecord(**known)
