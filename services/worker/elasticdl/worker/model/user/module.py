"""The user's model file, loaded: the functions of the model-zoo contract.

=====================================  =============================================================================
symbol                                 contract
=====================================  =============================================================================
``custom_model(**params)``             returns a Keras model (or is a ``keras.Model`` class)
``loss(labels, predictions[, w])``     a scalar, or one value per record
``optimizer()``                        a Keras optimizer
``feed(dataset, mode, metadata)``      a ``tf.data.Dataset`` of one batch's raw records -> elements
``feed_batch(records, mode, meta...)`` a whole batch -> ``(features, labels[, sample_weight])``
``eval_metrics_fn()``                  ``{name: metric or function}`` or ``{output: {name: metric or function}}``
``weighted_eval_metrics_fn()``         the same for metrics that use the sample weights
``callbacks()``                        must return an empty list: no Keras callback can be honoured, see ``_refuse``
=====================================  =============================================================================
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.printing import show_prints

_INSTEAD = {
    "LearningRateScheduler": "return an optimizer with a keras.optimizers.schedules schedule (your own subclass works)",
    "ReduceLROnPlateau": "return an optimizer with a keras.optimizers.schedules schedule",
    "ModelCheckpoint": "snapshots are taken all the time, see --checkpoint_steps",
    "BackupAndRestore": "a job resumes by itself, see --resume",
    "EarlyStopping": "use --max_step",
    "TensorBoard": "losses and metrics are on the job's event log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModule:
    """The loaded model file.

    Attributes:
        file: where it is.
        params: keyword arguments of the model function.
        module: the module itself.
    """

    file: ModelFile
    params: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    module: ModuleType

    @property
    def path(self) -> Path:
        """The model file."""
        return self.file.path

    def function(self, name: str) -> Callable[..., Any] | None:
        """The function of that name, if the file has one.

        Raises:
            UserError: the name is bound to something that can't be called.
        """
        value = getattr(self.module, name, None)
        if value is not None and not callable(value):
            raise UserError(f"{self.path}: {name!r} must be a function, it is a {type(value).__name__}")
        return value

    def required(self, name: str) -> Callable[..., Any]:
        """The function of that name.

        Raises:
            UserError: there is none.
        """
        function = self.function(name)
        if function is None:
            raise UserError(f"{self.path} defines no {name!r}", hint=f"Define a function {name} in the file.")
        return function

    def make_model(self) -> Any:
        """Call the model function with the parameters; the result is a ``keras.Model``."""
        make = self.required(self.file.symbol)
        with user_code(self.path, f"{self.file.symbol}()"):
            model = make(**self.params)
        if not isinstance(model, keras.Model):
            raise UserError(f"{self.path}: {self.file.symbol}() must return a keras.Model, not {type(model).__name__}")
        return model

    def make_optimizer(self) -> Any:
        """Call ``optimizer()``; the result is a ``keras.optimizers.Optimizer``."""
        with user_code(self.path, "optimizer()"):
            optimizer = self.required("optimizer")()
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise UserError(f"{self.path}: optimizer() must return a Keras optimizer, not {type(optimizer).__name__}")
        return optimizer

    def make_metrics(self, name: str) -> Mapping[str, Any]:
        """Call ``eval_metrics_fn()`` or ``weighted_eval_metrics_fn()``; empty without one."""
        function = self.function(name)
        if function is None:
            return {}
        with user_code(self.path, f"{name}()"):
            metrics = function()
        if not isinstance(metrics, Mapping):
            raise UserError(f"{self.path}: {name}() must return a dict, not {type(metrics).__name__}")
        return metrics

    def loss_takes_weights(self) -> bool:
        """Whether ``loss`` can be called with a third argument, the sample weights."""
        loss = self.required("loss")
        try:
            inspect.signature(loss).bind(None, None, None)
        except TypeError:
            return False
        return True


def load(file: ModelFile, params: Mapping[str, object] | None = None) -> UserModule:
    """Import a model file, with the modules beside it importable, and check it against the contract.

    Raises:
        UserError: something of the contract is missing, or a callback is asked for.
        UserCodeError: importing the file raised.
    """
    show_prints()
    module = UserModule(file=file, params=MappingProxyType(dict(params or {})), module=_import(file.path))
    for name in (file.symbol, "loss", "optimizer"):
        module.required(name)
    if module.function("feed") is None and module.function("feed_batch") is None:
        raise UserError(f"{file.path} defines neither feed(dataset, mode, metadata) nor feed_batch(records, ...)")
    _refuse_callbacks(module)
    return module


def _import(path: Path) -> ModuleType:
    """Import the model file, and write no compiled file: its folder may be read-only, or watched by another tool."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return _import_file(path)
    finally:
        sys.dont_write_bytecode = before


def _import_file(path: Path) -> ModuleType:
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    for folder in dict.fromkeys((os.getcwd(), str(path.parent), str(root))):
        if folder not in sys.path:
            # After the standard library: the user's json.py must not take the place of that of our dependencies.
            sys.path.insert(_first_package_folder(), folder)
    name = ".".join(parts)
    loaded = sys.modules.get(name)
    if parts[0] in sys.stdlib_module_names or (loaded and getattr(loaded, "__file__", None) != str(path)):
        name = f"elasticdl_model_{path.stem}"  # A model file may be called like a module that exists: keras.py.
    if len(parts) > 1 and name == ".".join(parts):
        with user_code(path, "importing"):
            return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code(path, "importing"):
        spec.loader.exec_module(module)
    return module


def _first_package_folder() -> int:
    """Index in ``sys.path`` of the first folder of installed packages."""
    installed = (number for number, entry in enumerate(sys.path) if entry.endswith(("site-packages", "dist-packages")))
    return next(installed, len(sys.path))


def _refuse_callbacks(module: UserModule) -> None:
    """No callback of Keras can be honoured: there is no fit() loop, and no process sees every batch."""
    function = module.function("callbacks")
    if function is None:
        return
    with user_code(module.path, "callbacks()"):
        callbacks = list(function() or ())
    if callbacks:
        kind = type(callbacks[0]).__name__
        raise UserError(
            f"{module.path}: callbacks() returns {kind}, but no worker sees every batch, so callbacks can't run",
            hint=f"Instead: {_INSTEAD.get(kind, 'remove it from callbacks()')}.",
        )
