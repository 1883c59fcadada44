"""The weights of a ``.keras`` file whose layers Keras can't make again, for the model that the model file makes."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from keras.src.saving.saving_lib import H5IOStore  # It reads what ``model.save()`` writes.

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.calls import without_colours

LOAD_ERRORS = (
    TypeError,
    ValueError,
    KeyError,
    AttributeError,
    NotImplementedError,
    ImportError,
    NameError,
    RuntimeError,
    OSError,
    tf.errors.OpError,
)
"""What Keras raises for a file that it can't load. It calls constructors of the user's own classes."""
_WEIGHTS = "model.weights.h5"
_OPTIMIZER = "optimizer"
_NUMBER = re.compile(r"_\d+$")
_ARGUMENT = re.compile(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")
_CAUSE = "Exception encountered: "
_UNKNOWN = re.compile(r"Could not locate (class|function) '(\w+)'")
_LAMBDA = re.compile(r"deserialization of a `Lambda` layer|Exception encountered when calling Lambda\.call")
_REASON_CHARS_MAX = 200

Shapes = Mapping[str, tuple[str, tuple[tuple[int, ...], ...]]]
"""Place of a layer in a file of weights -> its name without a number, and the shapes of its variables."""


def loading_problem(error: BaseException) -> str:
    """Why Keras can't load a file, as a sentence without an end: without the configuration that Keras puts first."""
    text = without_colours(str(error))
    if found := _ARGUMENT.search(text):
        return (
            f"{found[1]}.__init__() does not take {found[2]!r}, which get_config() gives (add **kwargs to it, and call "
            "super().__init__(**kwargs))"
        )
    if found := _UNKNOWN.search(text):
        return f"the {found[1]} {found[2]} is not defined there, or not registered with Keras"
    if _LAMBDA.search(text):
        return (
            "a Lambda layer is whole in a file only if it uses nothing but its arguments (make it a class of your own)"
        )
    reason = text.rpartition(_CAUSE)[2].strip().partition("\n")[0]
    return reason[:_REASON_CHARS_MAX].rstrip(".") or type(error).__name__


@dataclass(frozen=True, slots=True, kw_only=True)
class KerasWeights:
    """A ``.keras`` file of which only the weights are used.

    Attributes:
        problem: why Keras can't load the whole file.
    """

    file: Path
    shown: str
    problem: str

    def note(self, symbol: str) -> str:
        """A line for the start of the job; ``symbol`` is the name of the model function."""
        return f"{self.shown} can't be loaded as a model, as {self.problem}. Its weights are in the model of {symbol}()"

    def load_into(self, model: Any, path: Path) -> None:
        """Load the weights into a model that has the same layers, with the same names and shapes."""
        try:
            difference = _difference(self._shapes(), _shapes_of(model))
            if not difference:
                model.load_weights(self.file)
        except LOAD_ERRORS as error:
            difference = loading_problem(error)
        if difference:
            raise UserError(
                f"{self.shown} can't be loaded as a model: {self.problem}. Its weights do not fit the model of {path} "
                f"either: {difference}",
                hint=f"Is {path.name} the model file of this model, with the --model_params of its training?",
            )

    def _shapes(self) -> Shapes:
        with zipfile.ZipFile(self.file) as archive, closing(H5IOStore(_WEIGHTS, archive=archive)) as store:
            return _shapes_in(store.h5_file)


def has_weights(file: Path) -> bool:
    """Whether a file is one that ``model.save()`` of Keras 3 has written."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return _WEIGHTS in archive.namelist()


def _shapes_of(model: Any) -> Shapes:
    with tempfile.TemporaryDirectory(prefix="elasticdl-weights-") as folder:
        file = Path(folder, _WEIGHTS)
        model.save_weights(file)
        with closing(H5IOStore(file)) as store:
            return _shapes_in(store.h5_file)


def _shapes_in(weights: Any) -> Shapes:
    shapes: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {}

    def visit(place: str, group: Any) -> None:
        if place.rpartition("/")[2] == "vars" and not place.startswith(_OPTIMIZER):
            found = tuple(tuple(each.shape) for each in group.values())
            if found:
                shapes[place] = _NUMBER.sub("", str(group.attrs.get("name", ""))), found

    weights.visititems(visit)
    return shapes


def _difference(there: Shapes, here: Shapes) -> str:
    """The first difference between a file and a model, for people; empty without a difference."""
    for place in dict.fromkeys((*there, *here)):
        if place not in here:
            return f"the file has a layer {there[place][0] or place}, the model has not"
        if place not in there:
            return f"the model has a layer {here[place][0] or place}, the file has not"
        (theirs, in_file), (ours, in_model) = there[place], here[place]
        if theirs and ours and theirs != ours:
            return f"the layer {theirs} of the file is called {ours} in the model"
        if in_file != in_model:
            return f"the variables of layer {ours or place} are {_text(in_file)} there and {_text(in_model)} here"
    return ""


def _text(shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(map(str, shapes))
