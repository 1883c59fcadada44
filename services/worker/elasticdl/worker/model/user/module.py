"""The user's model file, loaded: the functions of the model-zoo contract.

=====================================  =============================================================================
symbol                                 contract
=====================================  =============================================================================
``custom_model(**params)``             returns a Keras model (or is a ``keras.Model`` class, or a model)
``loss(labels, predictions[, w])``     a scalar, or one value per record
``optimizer()``                        a Keras optimizer
``feed(dataset, mode, metadata)``      a ``tf.data.Dataset`` of one batch's raw records -> elements
``feed_batch(records, mode, meta...)`` a whole batch -> ``(features, labels[, sample_weight])``
``eval_metrics_fn()``                  ``{name: metric or function}`` or ``{output: {name: metric or function}}``
``weighted_eval_metrics_fn()``         the same for metrics that use the sample weights
``sample_weight``                      the column of the sample weights, for a file without a feed
``class_weight``                       ``{class: weight}``, or a function that returns it, see ``class_weights.py``
``callbacks()``                        a list of Keras callbacks with hooks of epochs, see ``callbacks``
=====================================  =============================================================================

``loss``, ``optimizer`` and ``callbacks`` may be plain values, see ``plain_values.py``.

Without a feed, the columns of the data are the inputs of the model, see ``default_feed.py``. Without ``loss`` or
``optimizer`` the model has to be compiled. What ``compile()`` was given is used for those functions that the file does
not define.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import keras
import tensorflow as tf

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import FEEDS, ModelFile, may_compile
from elasticdl.worker.model.user import first_elasticdl
from elasticdl.worker.model.user.calls import also_of_user, user_code
from elasticdl.worker.model.user.class_names import ClassNames
from elasticdl.worker.model.user.compiled import Compiled
from elasticdl.worker.model.user.default_feed import DefaultFeed
from elasticdl.worker.model.user.keras_weights import LOAD_ERRORS, KerasWeights, has_weights, loading_problem
from elasticdl.worker.model.user.plain_values import as_function, is_plain
from elasticdl.worker.model.user.top_level import no_training

_INSTALLED = {"site-packages", "dist-packages"}
"""Names of folders of installed packages."""
COMPILED = ("loss", "optimizer")
"""Functions that a file needs unless its model is compiled."""
_tensorflow_print = tf.print


class LoadError(UserError):
    """Keras can't load a file as a model.

    Attributes:
        weights: its weights, which another model may take; None: the file has none.
    """

    def __init__(self, message: str, *, hint: str, weights: KerasWeights | None) -> None:
        super().__init__(message, hint=hint)
        self.weights = weights


@dataclass(frozen=True, slots=True, kw_only=True)
class UserModule:
    """The loaded model file.

    Attributes:
        exported: a local ``.keras`` file that holds the model, in place of the model function; None: none.
        weights: a ``.keras`` file whose weights the model of the model function takes; None: none.
        compiled: the model's loss, optimizer and metrics, once it is made and if it is compiled.
        default_feed: stands in for ``feed_batch`` if the file has no feed.
        classes: of labels that are texts or booleans; empty if absent.
        ignores_plain: the model is, or may be, compiled: values of ``loss`` and ``optimizer`` that are no functions do
            not count.
    """

    file: ModelFile
    params: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    module: ModuleType
    exported: Path | None = None
    weights: KerasWeights | None = None
    compiled: Compiled | None = None
    default_feed: DefaultFeed | None = None
    classes: ClassNames = ()
    ignores_plain: bool = False

    @property
    def path(self) -> Path:
        """The model file."""
        return self.file.path

    def function(self, name: str) -> Callable[..., Any] | None:
        """The function that the contract calls so, if the file has one.

        Raises:
            UserError: the name is bound to something that can't be called, or a flag names a function that is missing.
        """
        value: Any = self.value(name)
        if value is not None and (made := as_function(name, value, self.path)) is not None:
            value = made
        if value is None and name in self.file.functions:
            raise UserError(f"--{name}={self.file.functions[name]}: {self.path} defines no such function")
        if value is None and name in COMPILED:
            return getattr(self.compiled, name, None)
        if value is None and name == "feed_batch":
            return self.default_feed
        if value is not None and not callable(value):
            raise UserError(
                f"{self.path}: {self.file.name_of(name)!r} must be a function, it is a {type(value).__name__}"
            )
        function: Callable[..., Any] | None = value
        return function

    def value(self, name: str) -> Any:
        """What the file binds to a name of the contract, or to the one that a flag names instead; None: nothing.

        Beside a compiled model, a ``loss`` that is a text, or a number, is the file's own business.
        """
        value = getattr(self.module, self.file.name_of(name), None)
        return None if self.ignores_plain and is_plain(name, value) else value

    def required(self, name: str) -> Callable[..., Any]:
        """The function of that name."""
        function = self.function(name)
        if function is None:
            raise UserError(f"{self.path} defines no {name!r}", hint=f"Define a function {name} in the file.")
        return function

    @property
    def has_feed(self) -> bool:
        """Whether the file turns records into tensors itself."""
        return any(self.function(name) is not None for name in FEEDS)

    @property
    def has_loss(self) -> bool:
        """Whether the file or ``compile()`` gives a loss. Without one, layers have to add it: ``add_loss()``."""
        return self.value("loss") is not None or self.compiled is None or self.compiled.has_loss

    @property
    def _lacks_what_compile_gives(self) -> bool:
        return any(self.value(name) is None for name in COMPILED)

    def make_model(self) -> Any:
        """Call the model function with the parameters, or load the file; the result is a ``keras.Model``."""
        if self.exported is not None:
            # What only the file says: once the module is completed by the model, it must load the same one again.
            return self.load_model(self.exported, compiled=self._lacks_what_compile_gives)
        make = self.required(self.file.symbol)
        if isinstance(make, keras.Model):
            return self._remade()
        with user_code(self.path, f"{self.file.symbol}()"):
            model = make(**self.params)
        if not isinstance(model, keras.Model):
            raise UserError(f"{self.path}: {self.file.symbol}() must return a keras.Model, not {type(model).__name__}")
        return model

    def _remade(self) -> Any:
        """A model that the file makes at its top level, made again: a job needs new models, with initial weights."""
        if self.params:
            raise UserError(
                f"{self.path}: {self.file.symbol} is a model, so it takes no --model_params",
                hint="Define a function that returns the model.",
            )
        present = self.value(self.file.symbol)
        _forget_modules_with(present, besides=self.module.__name__)
        again = getattr(_without_bytecode(lambda: _executed(self.path, self.module.__name__)), self.file.symbol)
        _forget_modules_with(again, besides=self.module.__name__)
        if again is present:
            package = _installed_module_with(present)
            raise UserError(
                f"{self.path} gives the same model each time it is run, and a job needs new ones",
                hint=f"The model is made by {package}, which is an installed package and is not run again. Import a "
                "function that makes the model."
                if package
                else "Define a function that returns a new model.",
            )
        return again

    def completed_by(self, model: Any) -> UserModule:
        """This file, with what a compiled model adds to it.

        Raises:
            UserError: the loss or the optimizer is neither in the file, nor is the model compiled.
        """
        if not model.compiled and self.ignores_plain:
            return replace(self, ignores_plain=False).completed_by(model)
        missing = [name for name in COMPILED if self.function(name) is None]
        if missing and not model.compiled:
            raise UserError(
                f"{self.path} defines no {missing[0]!r}, and the model is not compiled",
                hint=f"Define a function {missing[0]} in the file, or call compile() on the model.",
            )
        return replace(self, compiled=Compiled(model, self.path) if model.compiled else None)

    def load_model(self, exported: Path, *, compiled: bool = False, shown: str = "") -> Any:
        """Load a ``.keras`` file, with the classes and functions of the model file.

        Args:
            shown: what errors call the file; empty: its path.
        """
        known = {name: value for name, value in vars(self.module).items() if callable(value)}
        try:
            return keras.saving.load_model(exported, custom_objects=known, compile=compiled)
        except LOAD_ERRORS as error:
            problem, name = loading_problem(error), shown or str(exported)
            raise LoadError(
                f"{name} can't be loaded as a Keras model: {problem}",
                hint=f"Layers of your own have to be defined in {self.path}. Is it the model file of this model?",
                weights=KerasWeights(file=exported, shown=name, problem=problem) if has_weights(exported) else None,
            ) from error

    def with_exported(self, file: Path, shown: str) -> UserModule:
        """This file with a trained model: as the file describes it, else with its weights in the model function's."""
        try:
            self.load_model(file, compiled=self._lacks_what_compile_gives, shown=shown)
        except LoadError as error:
            if error.weights is None:
                raise
            return replace(self, weights=error.weights)
        return replace(self, exported=file)

    def make_optimizer(self) -> Any:
        """Call ``optimizer()``; the result is a ``keras.optimizers.Optimizer``."""
        name = self.file.name_of("optimizer")
        with user_code(self.path, f"{name}()"):
            optimizer = self.required("optimizer")()
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise UserError(f"{self.path}: {name}() must return a Keras optimizer, not {type(optimizer).__name__}")
        if schedule := self._schedule_of_updates():
            optimizer._learning_rate = schedule
        return optimizer

    def _schedule_of_updates(self) -> Any:
        """The learning rate in the form of the first ElasticDL; None: the file has none."""
        callbacks: Any = ()
        if any(value is first_elasticdl.LearningRateScheduler for value in vars(self.module).values()):
            function = self.function("callbacks")
            with user_code(self.path, "callbacks()"):
                callbacks = (function() if function else None) or ()
        return first_elasticdl.schedule_of(self.value(first_elasticdl.SCHEDULE), [*callbacks])

    def make_metrics(self, name: str) -> Mapping[str, Any]:
        """Call ``eval_metrics_fn()`` or ``weighted_eval_metrics_fn()``; empty without one."""
        function = self.function(name)
        if function is None:
            return {}
        name = self.file.name_of(name)
        with user_code(self.path, f"{name}()"):
            metrics = function()
        if not isinstance(metrics, Mapping):
            raise UserError(f"{self.path}: {name}() must return a dict, not {type(metrics).__name__}")
        return metrics

    def loss_takes(self, arguments: int) -> bool:
        """Whether ``loss`` can be called with this number of arguments; the third one is the sample weights."""
        loss = self.required("loss")
        try:
            inspect.signature(loss).bind(*[None] * arguments)
        except TypeError:
            return False
        return True


def load(file: ModelFile, params: Mapping[str, object] | None = None) -> UserModule:
    """Import a model file, with the modules beside it importable, and check it against the contract.

    Raises:
        UserCodeError: importing the file raised.
    """
    show_prints()
    first_elasticdl.install()
    module = UserModule(
        file=file,
        params=MappingProxyType(dict(params or {})),
        module=_without_bytecode(lambda: _import(file.path)),
        ignores_plain=may_compile(file),
    )
    if folder := module.value("SCRIPT_FOLDER"):
        also_of_user(Path(folder), file.path.parent)
    for name in (file.symbol, *(() if may_compile(file) else COMPILED)):
        module.required(name)
    return module


def _without_bytecode(run: Callable[[], ModuleType]) -> ModuleType:
    """Import the model file, and write no compiled file: its folder may be read-only, or watched by another tool."""
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return run()
    finally:
        sys.dont_write_bytecode = before


def _import(path: Path) -> ModuleType:
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
        with user_code(path, "importing"), no_training(path):
            return importlib.import_module(name)
    return _executed(path, name)


def _executed(path: Path, name: str) -> ModuleType:
    """Run a file as a new module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with user_code(path, "importing"), no_training(path):
        spec.loader.exec_module(module)
    return module


def _forget_modules_with(model: Any, besides: str) -> None:
    """Let the user's modules that bind a model run again when they are imported next, so that they make a new one."""
    for name in _modules_with(model):
        if name != besides and not _is_installed(sys.modules[name]):
            del sys.modules[name]
            package, _, last = name.rpartition(".")
            if package in sys.modules:
                vars(sys.modules[package]).pop(last, None)  # Otherwise ``from package import`` finds it there.


def _modules_with(model: Any) -> list[str]:
    """Names of the modules from files that bind a model."""
    modules = [(name, module) for name, module in sys.modules.items() if getattr(module, "__file__", None)]
    return [name for name, module in modules if any(value is model for value in list(vars(module).values()))]


def _installed_module_with(model: Any) -> str:
    """The name of a module of an installed package that binds a model; empty if absent."""
    return next((name for name in _modules_with(model) if _is_installed(sys.modules[name])), "")


def _is_installed(module: ModuleType) -> bool:
    return not _INSTALLED.isdisjoint(Path(module.__file__ or "").parts)


def _first_package_folder() -> int:
    """Index in ``sys.path`` of the first folder of installed packages."""
    installed = (number for number, entry in enumerate(sys.path) if entry.endswith(tuple(_INSTALLED)))
    return next(installed, len(sys.path))


@functools.wraps(_tensorflow_print)
def _print(*inputs: Any, **options: Any) -> Any:
    options.setdefault("output_stream", sys.stdout)
    return _tensorflow_print(*inputs, **options)


_shown = tf.autograph.experimental.do_not_convert(_print)


def show_prints() -> None:
    """Have ``tf.print`` write where ``print`` does, to standard output, unless it is told otherwise.

    By default it writes to the C library's standard error: into the worker's log file, among TensorFlow's own lines.
    """
    tf.print = _shown
