"""Names of a Keras model's variables that are the same before it is saved and after it is loaded.

``variable.path`` is not: it depends on how the model came to be built. The kernel of a layer ``inner`` in a model
``sub`` is ``sub/inner/kernel`` if the outer model has built the inner one, and ``inner/kernel`` in a loaded model.

Keras numbers layers without a name in the order in which a process makes them. In a notebook that has made another
model before, the layers ``dense`` and ``dense_1`` are called ``dense_2`` and ``dense_3``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from keras.src.utils.naming import to_snake_case

from elasticdl.worker.model.initial.layer_numbers import UNKNOWN, shifted

EMBEDDINGS = "embeddings"
"""Name of the table of an embedding layer."""
_AS_THEY_ARE: Mapping[int, str] = MappingProxyType({})


def named_variables(model: Any, renamed: Mapping[int, str] = _AS_THEY_ARE) -> dict[str, Any]:
    """Name -> each variable of a model and, in its place, each embedding layer whose table the ps serves.

    A name is made of the names of the layers around the variable, without that of the model: ``sub/inner/kernel``. Of
    variables with the same name, the second one ends in ``#2``.

    Args:
        renamed: ``id()`` of a layer -> a name to use instead of its own.
    """
    seen: Counter[str] = Counter()
    named: dict[str, Any] = {}
    for name, variable in _walk(model, "", renamed, set()):
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name}#{seen[name]}"] = variable
    return named


def renumbered(trained: Any, model: Any) -> dict[int, str]:
    """Layers of a trained model whose numbers are shifted -> the names of the corresponding layers of another model.

    Numbers are shifted if both models have, in the same place, as many layers of a class that Keras has named, with
    the same gaps between their numbers.

    Returns:
        ``id()`` of each such layer -> name.
    """
    renamed: dict[int, str] = {}
    theirs, mine = _numbered(trained), _numbered(model)
    for base in theirs.keys() & mine.keys():
        for number, other in shifted(theirs[base], mine[base]).items():
            layer = theirs[base][number]
            renamed[id(layer)] = f"{layer.name}{UNKNOWN}" if other is None else mine[base][other].name
    inner = {layer.name: layer for layer in model._layers}
    for layer in trained._layers:
        if (counterpart := inner.get(renamed.get(id(layer), layer.name))) is not None:
            renamed |= renumbered(layer, counterpart)
    return renamed


def _numbered(model: Any) -> dict[str, dict[int, Any]]:
    """The layers of a model that Keras has named: name without number -> number -> layer."""
    found: dict[str, dict[int, Any]] = {}
    for layer in model._layers:
        numbered = re.fullmatch(r"(.+?)(?:_(\d+))?", layer.name)
        # A served embedding is of a subclass of its own.
        if numbered and numbered[1] in _class_names(layer):
            found.setdefault(numbered[1], {})[int(numbered[2] or 0)] = layer
    return found


def class_names(model: Any) -> set[str]:
    """The names that Keras gives to a model and the layers in it, without a number."""
    return set().union(_class_names(model), *(class_names(layer) for layer in model._layers))


def _class_names(layer: Any) -> set[str]:
    return {to_snake_case(kind.__name__) for kind in type(layer).__mro__}


def without_model_names(names: list[str]) -> dict[str, str]:
    """Each name -> the name without its first part, if that is common to all: the name of the model.

    A name keeps at least the name of a layer: ``sequential/dense/kernel`` -> ``dense/kernel``.
    """
    parts = [name.split("/") for name in names]
    if len({first[0] for first in parts}) == 1 and all(len(part) > 2 for part in parts):
        return {name: name.partition("/")[2] for name in names}
    return {name: name for name in names}


def _walk(layer: Any, prefix: str, renamed: Mapping[int, str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    own = [*layer._trainable_variables, *layer._non_trainable_variables]
    for variable in own:
        yield f"{prefix}{variable.name}", variable
    if not own and _is_served(layer):
        yield f"{prefix}{EMBEDDINGS}", layer
    for inner in layer._layers:
        yield from _walk(inner, f"{prefix}{renamed.get(id(inner), inner.name)}/", renamed, seen)


def _is_served(layer: Any) -> bool:
    return hasattr(layer, "embeddings_initializer")
