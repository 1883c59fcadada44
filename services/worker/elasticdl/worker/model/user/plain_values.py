"""``loss = "mse"``, ``optimizer = Adam(0.01)``, ``callbacks = [...]``: plain values where a function is expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shipping.pickling import copied


def as_function(name: str, value: Any, path: Path) -> Callable[..., Any] | None:
    """The function of the contract that a plain value stands for; None: it stands for none.

    Raises:
        UserError: Keras has nothing of that name.
    """
    if name == "callbacks" and isinstance(value, list | tuple):
        return lambda: [copied(each) for each in value]  # A job runs hooks of new objects.
    if name == "optimizer" and isinstance(value, str | keras.optimizers.Optimizer):
        if isinstance(value, str):
            _known(keras.optimizers.get, value, f"{path}: optimizer = {value!r}")
        return lambda: keras.optimizers.get(value) if isinstance(value, str) else copied(value)
    if name == "loss" and isinstance(value, str):
        loss: Callable[..., Any] = _known(keras.losses.get, value, f"{path}: loss = {value!r}")
        return loss
    if name == "loss" and isinstance(value, type) and issubclass(value, keras.losses.Loss):
        made: Callable[..., Any] = value()
        return made
    return None


def is_plain(name: str, value: Any) -> bool:
    """Whether a value of that name is none that a model file with functions has."""
    return name in ("loss", "optimizer") and not callable(value)


def _known(find: Callable[[str], Any], name: str, what: str) -> Any:
    try:
        return find(name)
    except ValueError as error:
        raise UserError(f"{what}, which Keras does not know", hint="See keras.io/api for the names.") from error
