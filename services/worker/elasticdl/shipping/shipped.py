"""What one call of ``fit()`` ships, and the model file that unpacks it in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from elasticdl.shipping.columns import Layout
from elasticdl.shipping.numbered import NumberedData, Source, structured
from elasticdl.shipping.pickling import dumps, loads
from elasticdl.shipping.references import SHIPPED, content

TRAINING, VALIDATION = "training", "validation"
_TEXT = '''"""Gives workers the model that {script} passed to fit()."""

from elasticdl.shipping.shipped import Shipped

SCRIPT_FOLDER = {folder!r}
_SHIPPED = Shipped(__file__)
class_weight = _SHIPPED.class_weight


def custom_model():
    return _SHIPPED.load_model()


def feed_batch(records, mode, metadata):
    return _SHIPPED.feed(records, mode)


def callbacks():
    return _SHIPPED.callbacks()
'''


def write(
    folder: Path,
    script: Path,
    model: Any,
    layout: Layout,
    extras: Mapping[str, Any],
    name: str,
    sources: Mapping[str, bytes] = MappingProxyType({}),
) -> Path:
    """Write a model file and what it loads into a folder.

    Args:
        script: whose modules travel by value.
        extras: ``callbacks``, ``class_weight`` and ``initial_epoch`` of ``fit()``.
        name: of the file, without its suffix.
        sources: data that workers read by number: ``TRAINING`` or ``VALIDATION`` -> what ``dump_source`` gave.

    Returns:
        The model file.

    Raises:
        UserError: the model or a callback can't travel.
    """
    callbacks = [_without_model(callback) for callback in extras.get("callbacks") or ()]
    parts = {
        "model": dumps(model, script.parent, f"the model {model.name!r}"),
        "callbacks": dumps([one for one, _ in callbacks], script.parent, "the callbacks"),
        "class_weight": extras.get("class_weight"),
        "initial_epoch": extras.get("initial_epoch", 0),
        "layout": (layout.features, layout.labels, layout.weights),
        "sources": dict(sources),
    }
    for callback, attributes in callbacks:
        vars(callback).update(attributes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SHIPPED).write_bytes(dumps(parts, script.parent, "class_weight"))
    file = folder / f"{name}.py"
    file.write_text(_TEXT.format(script=script.name, folder=str(script.parent)))
    return file


def dump_source(folder: Path, script: Path, purpose: str, source: Source) -> bytes:
    """A source of data as bytes; its large arrays become files in the folder.

    Args:
        purpose: ``TRAINING`` or ``VALIDATION``.

    Raises:
        UserError: it can't travel.
    """
    return dumps(source, script.parent, source.name, folder / f"{purpose}_arrays")


def _without_model(callback: Any) -> tuple[Any, dict[str, Any]]:
    """A callback that has been used before refers to the model; returns what has to be put back into it."""
    kept = {name: vars(callback)[name] for name in ("_model", "params") if name in vars(callback)}
    vars(callback).update(dict.fromkeys(kept))
    return callback, kept


class Shipped:
    """What was shipped with a model file. Each call gives new objects, as functions of a model file do.

    Args:
        file: the model file.
        reference: where it is in object storage, see ``references``; nothing: beside the model file.
    """

    def __init__(self, file: str, *reference: Any) -> None:
        self._folder = Path(file).parent
        self._parts = loads(content(file, *reference) if reference else (self._folder / SHIPPED).read_bytes())
        self.class_weight = self._parts["class_weight"]
        self.initial_epoch: int = self._parts["initial_epoch"]
        features, labels, weights = self._parts["layout"]
        self._layout = Layout(features=features, labels=labels, weights=weights)

    def load_model(self) -> Any:
        """The model with the weights that it had when ``fit()`` was called."""
        return loads(self._parts["model"])

    def numbered(self, mode: str) -> NumberedData | None:
        """The data of a mode, if it is read by number."""
        purpose = TRAINING if mode == "train" else VALIDATION
        content = self._parts["sources"].get(purpose)
        if content is None:
            return None
        return NumberedData(lambda: loads(content, self._folder / f"{purpose}_arrays"), self._layout)

    def callbacks(self) -> list[Any]:
        """The callbacks of the call."""
        made: list[Any] = loads(self._parts["callbacks"])
        return made

    def feed(self, records: Mapping[str, Any], mode: str) -> Any:
        """The arguments of ``fit()`` for one batch: columns in the structure in which the script gave them."""
        layout = Layout(features=self._layout.features) if mode == "predict" else self._layout
        features, labels, weights = structured(layout, records)
        if labels is None and weights is None:
            return features
        return (features, labels) if weights is None else (features, labels, weights)
