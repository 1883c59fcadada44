"""Names of a Keras model's variables that are the same before it is saved and after it is loaded.

``variable.path`` is not: it depends on how the model came to be built. The kernel of a layer ``inner`` in a model
``sub`` is ``sub/inner/kernel`` if the outer model has built the inner one, and ``inner/kernel`` in a loaded model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

EMBEDDINGS = "embeddings"
"""Name of the table of an embedding layer."""


def named_variables(model: Any) -> dict[str, Any]:
    """Name -> each variable of a model and, in its place, each embedding layer whose table the ps serves.

    A name is made of the names of the layers around the variable, without that of the model: ``sub/inner/kernel``. Of
    variables with the same name, the second one ends in ``#2``.

    Args:
        model: a built ``keras.Model``.
    """
    seen: Counter[str] = Counter()
    named: dict[str, Any] = {}
    for name, variable in _walk(model, "", set()):
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name}#{seen[name]}"] = variable
    return named


def without_model_names(names: list[str]) -> dict[str, str]:
    """Each name -> the name without its first part, if that is common to all: the name of the model.

    A name keeps at least the name of a layer: ``sequential/dense/kernel`` -> ``dense/kernel``.
    """
    parts = [name.split("/") for name in names]
    if len({first[0] for first in parts}) == 1 and all(len(part) > 2 for part in parts):
        return {name: name.partition("/")[2] for name in names}
    return {name: name for name in names}


def _walk(layer: Any, prefix: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    for variable in own:
        yield f"{prefix}{variable.name}", variable
    if not own and _is_served(layer):
        yield f"{prefix}{EMBEDDINGS}", layer
    for inner in layer._layers:
        yield from _walk(inner, f"{prefix}{inner.name}/", seen)


def _is_served(layer: Any) -> bool:
    return hasattr(layer, "embeddings_initializer")
