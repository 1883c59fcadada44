"""Writes a Keras model that was passed as an object: a ``.keras`` file, and a model file that loads it."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import KERAS_FILE, PASSED_MODEL_FOLDER

_CONFIG = "config.json"
_LAMBDA, _FUNCTION = "__lambda__", "function"
_TEXT = '''"""Loads the model that was passed to elasticdl.api as an object."""

from pathlib import Path

import elasticdl.layers
{imports}from keras.saving import load_model


def custom_model():
    return load_model(Path(__file__).with_name("{file}"))
'''


@contextmanager
def model_file(model: Any) -> Iterator[Any]:
    """The value of ``--model_def`` for a model, while the block runs.

    Args:
        model: a compiled Keras model; a path or ``module.symbol`` is returned as it is.

    Raises:
        UserError: the model can't be loaded by another process.
    """
    if isinstance(model, str | Path):
        yield model
        return
    with tempfile.TemporaryDirectory(prefix=PASSED_MODEL_FOLDER) as folder:
        yield _write(model, Path(folder))


def _write(model: Any, folder: Path) -> Path:
    """Write a model into an empty folder.

    Returns:
        The model file. It is named like the model, and so is the job.
    """
    if not hasattr(model, "compiled") or not hasattr(model, "save"):
        raise UserError(f"the model is {type(model).__name__}; give a Keras model or the path of a model file")
    if not model.compiled:
        raise UserError(f"the model {model.name!r} is not compiled", hint="Call its compile() first.")
    if not model.built:
        raise UserError(f"the model {model.name!r} has no weights yet", hint="Begin it with keras.Input, or call it.")
    try:
        model.save(folder / KERAS_FILE)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise UserError(
            f"the model {model.name!r} can't be saved: {error}", hint="Write a model file that makes it."
        ) from error
    with zipfile.ZipFile(folder / KERAS_FILE) as archive:
        modules = _modules(model.name, json.loads(archive.read(_CONFIG)))
    file = folder / f"{re.sub(r'[^a-z0-9]+', '_', model.name.lower()).strip('_') or 'model'}.py"
    file.write_text(_TEXT.format(imports="".join(f"import {name}\n" for name in modules), file=KERAS_FILE))
    return file


def _modules(name: str, config: Any) -> list[str]:
    """The modules that define the classes and functions of a saved model, besides Keras' own.

    Raises:
        UserError: some are in no module that another process can import.
    """
    modules, stay = set(), set()
    for each in _objects(config):
        kind = each["class_name"]
        shown = each["config"] if kind == _FUNCTION else "a lambda" if kind == _LAMBDA else kind
        module = _module_of_registered(each["config"] if kind == _FUNCTION else each.get("registered_name") or "")
        if module in ("", "__main__"):
            stay.add(shown)
        else:
            modules.add(module)
    if stay:
        raise UserError(
            f"the model {name!r} can't be sent to the workers: they can't load {', '.join(sorted(stay))}",
            hint="Define layers and functions in a Python file beside this one, decorate them with "
            "@keras.saving.register_keras_serializable(), and import them from it. Or write a model file.",
        )
    return sorted(modules)


def _module_of_registered(name: str) -> str:
    """The module of a class or function that is registered with Keras; empty: none is registered by that name."""
    import keras  # The caller has imported it: there is a model.

    return getattr(keras.saving.get_registered_object(name), "__module__", "")


def _objects(config: Any) -> Iterator[Mapping[str, Any]]:
    """All classes and functions in the configuration of a model that are not Keras' own."""
    if isinstance(config, dict):
        is_keras = (config.get("module") or "").partition(".")[0] == "keras"
        if "class_name" in config and "config" in config and not is_keras:
            yield config
        for value in config.values():
            yield from _objects(value)
    elif isinstance(config, list):
        for value in config:
            yield from _objects(value)
