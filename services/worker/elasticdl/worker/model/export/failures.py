"""What goes wrong while a model is written becomes one sentence: the file, the layer if it is known, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.calls import UserCodeError, user_code

_UNTRACKED = "'untracked' resource"
_NUMBER = re.compile(r"_\d+$")
_RESOURCE = re.compile(r'ResourceHandle\(name="([^"]+)"')


@contextmanager
def writing(path: Path, name: str) -> Iterator[None]:
    """Write files of a model in a ``with`` block: Keras and TensorFlow call the user's code for that.

    Raises:
        UserError: something else than an error of this package was raised.
        MemoryError, tf.errors.ResourceExhaustedError: there was too little memory, which is not the fault of the code.
    """
    try:
        with user_code(path, f"writing {name}"):
            yield
    except UserCodeError as error:
        if isinstance(error.__cause__, MemoryError | tf.errors.ResourceExhaustedError):
            raise error.__cause__ from None
        if error.hint:
            raise
        raise UserCodeError(
            str(error),
            hint="A model can be written if get_config() gives what the constructor takes, and if tables and variables "
            "are attributes of layers.",
            traceback=error.traceback,
        ) from error


def check_resources(path: Path, model: Any, graphs: Iterable[Any], error: AssertionError) -> None:
    """Name the layer that uses a table or variable which TensorFlow does not find in the model.

    Args:
        graphs: its operations, once for each time that it was traced.
    """
    if _UNTRACKED not in str(error):
        return
    found = _RESOURCE.search(str(error))
    layer = _user_of(found[1], model, graphs) if found else ""
    subject = f"layer {layer!r}" if layer else "the model"
    raise UserError(
        f"{path}: {subject} can't be written as saved_model: it uses a lookup table or a variable that is no attribute "
        "of a layer",
        hint="Create it in __init__() or build(), and assign it to an attribute of the layer: self.table = ...",
    ) from error


def _user_of(resource: str, model: Any, graphs: Iterable[Any]) -> str:
    """The name of the innermost layer with an operation that uses a resource; empty if absent."""
    names = {layer.name for layer in model._flatten_layers(include_self=False)}
    for graph in graphs:
        for outer, inner in graph.captures:
            if outer.dtype != tf.resource or resource not in str(outer):
                continue
            for operation in inner.consumers():
                # TensorFlow numbers a scope that was there before.
                parts = (part if part in names else _NUMBER.sub("", part) for part in operation.name.split("/"))
                if inside := [part for part in parts if part in names]:
                    return inside[-1]
    return ""
