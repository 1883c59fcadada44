"""Models by name and version: what statements train, and others use.

ROOT/NAME/versions/3.json      a version; it exists or not, and is never changed
          trainings/ID/        a training: training.json, the snapshot of its rows, its columns, and the exported model
          dropped/3            its number is never used again; the training that it named

ROOT is a folder or an address in object storage.

A version names the training that made it. A training that was interrupted has no version; ``complete`` registers it
once its job was resumed and has succeeded.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from elasticdl.shared.errors import PermanentError, UserError, check_format, file_errors
from elasticdl.shared.storage import ObjectNotFoundError, display, join, open_store, scheme_of, to_uri
from elasticdl.shared.storage.uris import local_path
from elasticdl.shared.words import did_you_mean
from elasticdl.sql.statements import ModelName
from elasticdl.sql.workspace import Workspace

FORMAT = 1
NAME_CHARS_MAX = 120
TRAINING = "training.json"
WORK = ".work"
"""Folder of the registry for rows and results of statements that run."""
_TRAININGS, _VERSIONS, _DROPPED, _EXPORT = "trainings", "versions", "dropped", "model"
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
        model_def: the model file, within the training's folder.
        features: the file with the fitted columns, there too.
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


class Training:
    """A training: its rows, its columns, and the model that its job exports.

    Args:
        workspace: its folder.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Training) and self.workspace.uri == other.workspace.uri

    def __hash__(self) -> int:
        return hash(self.workspace.uri)

    @property
    def id(self) -> str:
        """Its name within its model."""
        return self.workspace.uri.rpartition("/")[2]

    @property
    def folder(self) -> Path:
        """On this machine; see ``Workspace``."""
        return self.workspace.folder

    @property
    def export(self) -> str:
        """Folder of the exported model, as jobs see it."""
        return self.workspace.place(_EXPORT)

    def read(self) -> TrainingRecord:
        """Raises ``UserError``: there is no such training, or it is damaged."""
        uri = join(self.workspace.uri, TRAINING)
        try:
            return _record(json.loads(open_store(uri).read(uri)))
        except ObjectNotFoundError as error:
            raise UserError(
                f"{display(self.workspace.uri)} holds no model of a statement: {TRAINING} is missing",
                hint="Give the name of a model, as SHOW MODELS lists it, or the folder of its training.",
            ) from error
        except (ValueError, TypeError) as error:
            raise UserError(f"{display(uri)} is damaged: {error}") from error

    def exists(self) -> bool:
        """Whether it has begun to train."""
        uri = join(self.workspace.uri, TRAINING)
        try:
            open_store(uri).info(uri)
        except ObjectNotFoundError:
            return False
        return True

    def write(self, record: TrainingRecord) -> None:
        """Replace ``training.json``."""
        uri = join(self.workspace.uri, TRAINING)
        open_store(uri).write(uri, _json(asdict(record)))

    def definition(self, folder: Path) -> Path:
        """A folder of this machine with the model file and the fitted columns.

        Args:
            folder: a temporary one, which is used if they are in object storage.
        """
        if self.workspace.is_here:
            return self.folder
        return Workspace(folder, self.workspace.uri).pull(without=(_EXPORT, "training", "validation"))

    def exported(self, folder: Path) -> Path:
        """The exported model on this machine; ``folder`` as of ``definition``."""
        return self.folder / _EXPORT if self.workspace.is_here else Workspace(folder, self.workspace.uri).pull(_EXPORT)


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """How the job of a training ended: its id, and its metrics."""

    job: str
    metrics: Mapping[str, float]


class Registry:
    """The models under a place, which need not exist.

    Args:
        root: a folder, or an address in object storage.
        scratch: folder of this machine for what is under way; None: ``root``, if that is one.
    """

    def __init__(self, root: Path | str, scratch: Path | None = None) -> None:
        self.uri = to_uri(root).rstrip("/")
        self.is_here = scheme_of(self.uri) == "file"
        self.root = local_path(self.uri) if self.is_here else (scratch or Path(tempfile.gettempdir()))
        self._store = open_store(self.uri)

    def begin(self, model: str) -> Training:
        """A new folder for a training.

        Raises:
            UserError: the name of the model can't be the name of a folder.
        """
        check_name(model)
        training = self._training(model, f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}")
        training.workspace.create()
        return training

    def work(self) -> Workspace:
        """A new folder for rows and results of a statement that uses a model."""
        name = secrets.token_hex(6)
        workspace = Workspace(self.root / WORK / name, join(self.uri, WORK, name))
        workspace.create()
        return workspace

    def discard(self, training: Training) -> None:
        """Delete a training that has come to nothing, and the folder of its model if nothing else is there."""
        training.workspace.remove()
        for folder in (training.folder.parent, training.folder.parent.parent):
            with suppress(OSError):
                folder.rmdir()

    def register(self, training: Training, finished: FinishedJob) -> ModelVersion:
        """Make the model of a training a version: the next one. A crash leaves it registered or not."""
        record = training.read()
        version = ModelVersion(
            record=record,
            version=0,
            job=finished.job,
            registered_s=time.time(),
            training=training.id,
            metrics=dict(finished.metrics),
        )
        while True:
            version = replace(version, version=self._last_number(record.model) + 1)
            # Another process may take the number first.
            if self._store.create(self._version(record.model, version.version), _json(asdict(version))):
                break
        if not self.is_here:
            shutil.rmtree(training.folder, ignore_errors=True)  # Everything is in object storage.
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
        if self.is_here:
            with suppress(OSError):
                return sorted(path.name for path in self.root.iterdir() if not path.name.startswith("."))
            return []
        found = {each.partition("/")[0] for each in self._names("")}
        return sorted(name for name in found if not name.startswith("."))

    def versions(self, model: str) -> list[ModelVersion]:
        """All versions, oldest first."""
        found = [self._read(self._version(model, number)) for number in self._numbers(model, _VERSIONS)]
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
        """The training of a version."""
        return self._training(version.record.model, version.training)

    def drop(self, name: ModelName) -> int:
        """Delete a version, or a whole model; returns the number of versions.

        Raises:
            UserError: there is none.
        """
        model = name.name.text
        if name.version is not None:
            self._drop(self.find(name))
            return 1
        if not _NAME.fullmatch(model) or model not in self.names():
            raise self._unknown(model)
        versions = self.versions(model)
        if self.is_here:  # All of it at once.
            dropped = self.root / f".dropped-{secrets.token_hex(6)}"
            with file_errors(f"{self.root / model} can't be deleted", PermanentError):
                (self.root / model).rename(dropped)
            shutil.rmtree(dropped, ignore_errors=True)
            return len(versions)
        for each in versions:
            self._drop(each)
        self._delete(f"{model}/{_TRAININGS}/")
        self._delete(f"{model}/")
        return len(versions)

    def _drop(self, version: ModelVersion) -> None:
        """Delete a version. What is left after a crash is not registered again."""
        model = version.record.model
        self._store.write(join(self.uri, model, _DROPPED, str(version.version)), version.training.encode())
        self._store.delete(self._version(model, version.version))
        self.training(version).workspace.remove()

    def _training(self, model: str, name: str) -> Training:
        return Training(Workspace(self.root / model / _TRAININGS / name, join(self.uri, model, _TRAININGS, name)))

    def _version(self, model: str, number: int) -> str:
        return join(self.uri, model, _VERSIONS, f"{number}.json")

    def _names(self, prefix: str) -> list[str]:
        """Names of the objects whose names begin with a prefix, without ``ROOT/``."""
        start = len(self.uri) + 1
        found = self._store.list(f"{join(self.uri, *prefix.split('/'))}")
        return [unquote(each.uri[start:]) if self.is_here else each.uri[start:] for each in found]

    def _delete(self, prefix: str) -> None:
        for found in list(self._store.list(join(self.uri, *prefix.split("/")))):
            self._store.delete(found.uri)

    def _numbers(self, model: str, kind: str) -> list[int]:
        names = [name.rpartition("/")[2].removesuffix(".json") for name in self._names(f"{model}/{kind}/")]
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def _last_number(self, model: str) -> int:
        return max((*self._numbers(model, _VERSIONS), *self._numbers(model, _DROPPED)), default=0)

    def _unregistered(self, model: str) -> Iterator[Training]:
        known = {each.training for each in self.versions(model)}
        for number in self._numbers(model, _DROPPED):
            known.add(self._store.read(join(self.uri, model, _DROPPED, str(number))).decode())
        if self.is_here:
            folders = sorted((self.root / model / _TRAININGS).glob("*"))
            names = [folder.name for folder in folders if (folder / TRAINING).is_file()]
        else:
            found = (name.split("/")[2:] for name in self._names(f"{model}/{_TRAININGS}/"))
            names = [each[0] for each in found if each[1:] == [TRAINING]]
        yield from (self._training(model, name) for name in names if name not in known)

    def _read(self, uri: str) -> ModelVersion:
        try:
            facts = json.loads(self._store.read(uri))
            check_format(display(uri), facts.get("format"), FORMAT)
            record = _record(facts.pop("record"))
            known = {name: value for name, value in facts.items() if name in ModelVersion.__dataclass_fields__}
            return ModelVersion(record=record, **known)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = f"{display(uri)} is damaged: {error}"
            raise UserError(message, hint="Restore a copy, or delete this file.") from error

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
