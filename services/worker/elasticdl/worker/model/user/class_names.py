"""The classes of labels that are texts or booleans: numbers for the loss, names for people. See ADR 15."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.data.ragged import ColumnValues
from elasticdl.shared.errors import UserError
from elasticdl.shared.words import some_of
from elasticdl.worker.model.user.calls import RecordError

CLASSES_FILE = "class_names.json"
"""Name in a ``.keras`` file."""
CLASSES_PATH = f"assets.extra/{CLASSES_FILE}"
"""Place in a SavedModel: TensorFlow leaves this folder to its users."""
_BOOLEANS = ("False", "True")
_SHOWN_MAX = 8


@dataclass(frozen=True, kw_only=True)
class Classes:
    """The classes of one output."""

    output: str
    column: str
    names: tuple[str, ...]

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def numbers(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """The number of each record's class.

        Args:
            values: labels, texts or booleans, of shape (records,).

        Raises:
            RecordError: a label is not one of the classes.
        """
        found = [self._numbers.get(text, -1) for text in _texts(values)]
        if -1 in found:
            place = found.index(-1)
            raise RecordError(
                f"label {next(_texts(values[place:]))!r} in column {self.column!r} is no class of the model, which "
                f"knows {some_of(self.names, _SHOWN_MAX)}",
                place=place,
                hint="The classes are those of the training data. Correct the label, leave the record out, or train a "
                "new model. For other classes with the weights of a trained model, give its output a new name.",
            )
        return np.array(found, np.int64)


ClassNames: TypeAlias = tuple[Classes | None, ...]
"""Of each output, in the order of ``keras.tree.flatten``; None: its labels are numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLabel:
    """A label of texts or booleans, before its classes are known.

    Attributes:
        shape: of the output, without the dimension of records.
    """

    output: str
    column: str
    is_bool: bool
    shape: tuple[int | None, ...]

    @property
    def classes_max(self) -> int:
        """How many classes the output tells apart."""
        units = self.shape[0] if len(self.shape) == 1 else None if self.shape else 1
        return 2 if units == 1 else units or 0


class LabelEncoder:
    """Learns the classes of labels from the training data, as an adapted layer does; see ``elasticdl.layers.adapt``.

    Args:
        labels: of each output; None: numbers.
        trained: the classes of the model that the job starts from: its weights belong to their numbers.
    """

    def __init__(self, labels: Sequence[TextLabel | None], path: Path, trained: ClassNames = ()) -> None:
        self._labels = labels
        self._path = path
        self._trained = {(one.output, one.column): one.names for one in trained if one is not None}
        self.classes: ClassNames = ()

    def get_config(self) -> dict[str, Any]:
        """What determines the classes, beside the data."""
        return {"labels": [[one.output, one.column] if one else None for one in self._labels]}

    def adapt(self, blocks: Callable[[], Iterator[Mapping[str, ColumnValues]]]) -> None:
        """Learn the classes: the different texts of each column, sorted.

        Raises:
            UserError: a label is missing, or the output tells another number of classes apart.
        """
        names = [one and self._known(one) for one in self._labels]
        found = {place: set[str]() for place, one in enumerate(self._labels) if one and not names[place]}
        for block in blocks() if found else ():
            for place, texts in found.items():
                label = self._labels[place]
                assert label is not None
                texts.update(_texts(np.unique(np.asarray(block[label.column]))))
                if "" in texts:
                    raise UserError(
                        f"{self._path}: records of the training data have no label in column {label.column!r}",
                        hint=f"Leave these records out, or make them a class: --fill_missing={label.column}=unknown.",
                    )
                self._check(label, sorted(texts), is_complete=False)
        self.take(
            tuple(
                Classes(output=one.output, column=one.column, names=names[place] or tuple(sorted(found[place])))
                if one
                else None
                for place, one in enumerate(self._labels)
            )
        )

    def _known(self, label: TextLabel) -> tuple[str, ...]:
        return self._trained.get((label.output, label.column), _BOOLEANS if label.is_bool else ())

    def take(self, classes: ClassNames) -> None:
        """Use classes that are known. Raises ``UserError``: an output tells another number of classes apart."""
        for label, one in zip(self._labels, classes, strict=True):
            if label is not None and one is not None:
                self._check(label, one.names, is_complete=True)
        self.classes = classes

    def _check(self, label: TextLabel, names: Sequence[str], *, is_complete: bool) -> None:
        expected, found = label.classes_max, len(names)
        if found == expected or (found < expected and not is_complete):
            return
        shape = ", ".join(map(str, (None, *label.shape)))
        some = f"{found}" if is_complete else f"more than {expected}"
        raise UserError(
            f"{self._path}: label {label.column!r} has {some} classes ({some_of(names, _SHOWN_MAX)}), and output "
            f"{label.output!r} of the model has the shape ({shape}), which is for {expected or 'no'} classes",
            hint="Give the output one unit for each class, or one unit for two classes. If the values are numbers: "
            f"--column_types={label.column}=float64. Another column: --label=COLUMN.",
        )


def facts_of(classes: ClassNames) -> list[Any]:
    """Classes as plain data."""
    return [
        None if one is None else {"output": one.output, "column": one.column, "classes": list(one.names)}
        for one in classes
    ]


def classes_of(facts: Sequence[Any]) -> ClassNames:
    """The inverse of ``facts_of``."""
    return tuple(
        None if one is None else Classes(output=one["output"], column=one["column"], names=tuple(one["classes"]))
        for one in facts
    )


def write_classes(classes: ClassNames, model: Path) -> None:
    """Add classes, if there are any, to a local ``.keras`` file or to the folder of a SavedModel."""
    if not any(classes):
        return
    text = json.dumps(facts_of(classes), ensure_ascii=False, indent=1)
    if model.is_dir():
        file = model / CLASSES_PATH
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    else:
        with zipfile.ZipFile(model, "a") as archive:
            archive.writestr(CLASSES_FILE, text)


def classes_in(file: Path) -> ClassNames:
    """What ``write_classes`` has added to a local ``.keras`` file; empty: nothing."""
    try:
        with zipfile.ZipFile(file) as archive:
            return classes_of(json.loads(archive.read(CLASSES_FILE)))
    except (zipfile.BadZipFile, KeyError):
        return ()


def _texts(values: NDArray[Any]) -> Iterator[str]:
    for value in values.tolist():
        yield value.decode(errors="replace") if isinstance(value, bytes) else str(value)
