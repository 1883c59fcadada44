"""What a model's ``.keras`` file will need to be loaded, known before training from the model's configuration."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.runner import ModelRunner
from elasticdl.worker.model.user.calls import without_colours

_KNOWN_MODULES = ("keras", "builtins", "elasticdl")
"""Keras finds what is its own; layers of this package are replaced by Keras' own in the file."""


def configuration(runner: ModelRunner) -> Any:
    """The model as the file will describe it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # The file's own warnings come when it is written.
            return keras.saving.serialize_keras_object(runner.built.model)
    except (NotImplementedError, TypeError, ValueError) as error:
        reason = " ".join(without_colours(str(error)).split())
        raise UserError(
            f"{runner.module.path}: the model can't be written as model.keras: {reason}",
            hint="Give the class a get_config(), or run without --output and ModelCheckpoint.",
        ) from error


def loading_notes(runner: ModelRunner) -> list[str]:
    """Lines for the worker's start: what has to be done so that the file loads elsewhere; none where it just does."""
    found = list(dict.fromkeys(_strangers(configuration(runner))))
    notes = []
    if names := [name for name in found if name]:
        be, them = ("is", "it") if len(names) == 1 else ("are", "them")
        notes.append(
            f"model.keras will not load elsewhere, as {', '.join(names)} {be} not registered with Keras: put "
            f"@keras.saving.register_keras_serializable() above {them} and import the model file before loading, "
            "or use saved_model, which needs neither"
        )
    if "" in found:
        notes.append(
            "model.keras holds a lambda: it loads with safe_mode=False, if the lambda uses nothing but its arguments. "
            "saved_model always loads"
        )
    return notes


def _strangers(value: Any) -> Iterator[str]:
    """Names of classes and functions that Keras can't find by itself; an empty one for a lambda."""
    match value:
        case {"class_name": "__lambda__"}:
            yield ""
        case {"class_name": "function", "config": str(name)} if not keras.saving.get_registered_object(name):
            yield f"{name}()"
        case {"class_name": str(name), "module": str(module), "registered_name": str(registered)} if module.partition(
            "."
        )[0] not in _KNOWN_MODULES and not keras.saving.get_registered_object(registered):
            yield name
    match value:
        case dict():
            for part in value.values():
                yield from _strangers(part)
        case list() | tuple():
            for part in value:
                yield from _strangers(part)
        case _:
            pass
