"""Runs the hooks of callbacks between two epochs, and keeps their state in plain data."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import keras
import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import NOTE_CHARS_MAX
from elasticdl.shared.storage import to_uri
from elasticdl.worker.core.commands import MergeResult, RunCallbacks
from elasticdl.worker.execution.callback_tasks import Instances, ModelAccess
from elasticdl.worker.model.user.calls import user_code

_OF_KERAS = ("_model", "params")
"""Attributes that ``set_model`` and ``set_params`` set."""
_CHANGES = frozenset((
    "add_loss", "compile", "compile_from_config", "fit", "load_weights", "set_weights", "train_on_batch", "train_step",
))  # fmt: skip
"""Methods of a model that would change the one that the job trains."""
_DIGESTED_BYTES_MIN = 1 << 16
"""Arrays from this size on, such as test data, are not kept in the state of a callback that leaves them as they are."""


class CallbackModel:
    """``self.model`` of a callback: whether training stops, the learning rate, and the model at the end of an epoch."""

    def __init__(self, learning_rate: float, *, has_schedule: bool, path: Path, access: ModelAccess) -> None:
        # Stands for the user's optimizer. Keras refuses to set a rate that has a schedule.
        schedule = keras.optimizers.schedules.ExponentialDecay(learning_rate, 1, 1.0)
        self.optimizer = keras.optimizers.SGD(schedule if has_schedule else learning_rate)
        self.stop_training = False
        self.metrics: list[Any] = []
        self.instances: Instances = {}
        """ps -> the instance that has the model at the end of the epoch whose hooks run; empty: none has ended."""
        self._has_schedule = has_schedule
        self._path = path
        self._access = access
        self._loaded: _Loaded | None = None
        self._is_made = True

    @property
    def learning_rate(self) -> float | None:
        """The optimizer's learning rate; None: it has a schedule."""
        if self._has_schedule:
            return None
        return float(keras.ops.convert_to_numpy(self.optimizer.learning_rate))

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True, **_: Any) -> None:
        """Write the model at the end of the epoch to a ``.keras`` file, which exists completely or not at all.

        Args:
            filepath: relative to the folder in which the job was started, or an address in object storage.
            overwrite: must be true, because a file that is there may be of a process that died.

        Raises:
            UserError: another format is asked for, or no epoch has ended.
            PinLostError: a ps restarted, so the model is gone.
        """
        self._write(filepath, ".keras", "save()", overwrite)

    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True, **_: Any) -> None:
        """Write the weights at the end of the epoch to a ``.weights.h5`` file; otherwise as ``save``."""
        self._write(filepath, ".weights.h5", "save_weights()", overwrite)

    def write_summaries(self, epoch: int, *, graph: bool) -> None:
        """Write histograms of the weights at the end of an epoch, from 0; errors as ``save``."""
        self._access.summarize(epoch, graph, self.instances)

    def _write(self, filepath: str | os.PathLike[str], suffix: str, what: str, overwrite: bool) -> None:
        place = f"{self._path}: a callback calls self.model.{what}"
        self._check_epoch(place)
        if not os.fspath(filepath).endswith(suffix) or not overwrite:
            raise UserError(f"{place} for {filepath}", hint=f"Give a name that ends in {suffix}, and overwrite=True.")
        self._access.save(to_uri(os.fspath(filepath)), self.instances)

    def _check_epoch(self, place: str) -> None:
        if not self.instances:
            raise UserError(f"{place} where no epoch has ended", hint="Use it in on_epoch_end() or on_train_end().")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _CHANGES:
            raise self._refusal(f"calls self.model.{name}()")
        return getattr(self._whole(f"a callback uses self.model.{name}"), name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call the model as it is at the end of the epoch."""
        return self._whole("a callback calls self.model()")(*arguments, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        if "_is_made" in vars(self) and name not in ("stop_training", "instances") and not name.startswith("_"):
            raise self._refusal(f"sets self.model.{name}")
        object.__setattr__(self, name, value)

    def _whole(self, what: str) -> Any:
        self._check_epoch(f"{self._path}: {what}")
        if self._loaded is None:
            self._loaded = _Loaded(self._access.load(self.instances))
        return self._loaded.model

    def forget(self) -> None:
        """Drop the model of the epoch whose hooks have run. Raises ``UserError``: a hook has changed it."""
        loaded, self._loaded = self._loaded, None
        if loaded is not None and loaded.is_changed():
            raise self._refusal("changes the weights of self.model, or which of them are trained")

    def _refusal(self, what: str) -> UserError:
        return UserError(
            f"{self._path}: a callback {what}, but the job trains the model in other processes",
            hint="Callbacks can read the model at the end of an epoch: predict(), evaluate(), get_weights(), save(). "
            "They can change self.model.stop_training and self.model.optimizer.learning_rate.",
        )


class _Loaded:
    """The model at the end of an epoch, and how it was when it came."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._weights = [keras.ops.convert_to_numpy(each) for each in model.weights]
        self._trained = [each.path for each in model.trainable_weights]

    def is_changed(self) -> bool:
        now = [keras.ops.convert_to_numpy(each) for each in self.model.weights]
        return self._trained != [each.path for each in self.model.trainable_weights] or not all(
            np.array_equal(old, new, equal_nan=old.dtype.kind == "f")
            for old, new in zip(self._weights, now, strict=True)
        )


class Hooks:
    """The callbacks of a job as live objects.

    Args:
        params: of ``fit()``: ``verbose``, ``epochs`` and ``steps``.
        initial_epoch: of ``fit()``: the number that hooks see of the job's first epoch.
    """

    def __init__(
        self,
        callbacks: list[Any],
        model: CallbackModel,
        params: Mapping[str, int],
        path: Path,
        *,
        initial_epoch: int = 0,
    ) -> None:
        self._initial_epoch = initial_epoch
        self._callbacks = callbacks
        self._model = model
        self._path = path
        self._made = [dict(vars(callback)) for callback in callbacks]
        self._digests = [
            {name: _digest(value) for name, value in made.items() if _is_large(value)} for made in self._made
        ]
        self._notes: list[str] = []
        for callback in callbacks:
            callback.set_params(dict(params))
            callback.set_model(model)

    def run(self, command: RunCallbacks) -> MergeResult:
        """Run the hooks of one task in the order of ``fit()``.

        Raises:
            UserError: a callback uses what it can't have.
            UserCodeError: a hook raised.
            PinLostError: a callback saves the model, and a ps restarted since the end of the epoch.
        """
        self._notes.clear()
        self._model.instances = command.instances
        epoch, is_start = self._initial_epoch + command.number // 2, command.number % 2 == 1
        if is_start:
            self._model.stop_training = False
            self._call("on_train_begin", {})
        else:
            self._drop_rows_of_others()
            logs = {name: command.logs[name] for name in sorted(command.logs, key=_fit_order)}
            self._call("on_epoch_end", epoch - 1, logs)
        results: dict[str, float] = {}
        if not is_start and (command.is_last or self._model.stop_training):
            self._call("on_train_end", logs)
            results["ended"] = 1.0
            if self._model.stop_training:
                results["stop_training"] = 1.0
        else:
            self._call("on_epoch_begin", epoch, {})
        self._model.forget()
        if self._model.learning_rate is not None:
            results["learning_rate"] = self._model.learning_rate
        return MergeResult(results=results, note="; ".join(self._notes)[:NOTE_CHARS_MAX])

    def _drop_rows_of_others(self) -> None:
        """Cut a CSV log behind the last row that this process has written: another one has written more and died."""
        for callback in self._callbacks:
            if isinstance(callback, keras.callbacks.CSVLogger):
                with user_code(self._path, f"{type(callback).__name__}.on_epoch_end()"):
                    callback.csv_file.truncate()

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self._callbacks:
            name = type(callback).__name__
            rate, stopped = self._model.learning_rate, self._model.stop_training
            with user_code(self._path, f"{name}.{hook}()"):
                getattr(callback, hook)(*arguments)
            if self._model.stop_training and not stopped:
                self._notes.append(f"{name} stops training{_why(callback)}")
            if self._model.learning_rate != rate:
                self._notes.append(f"{name} changes the learning rate from {rate:g} to {self._model.learning_rate:g}")

    # --- state ----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What another process needs to continue, as JSON values."""
        return {
            "stop_training": bool(self._model.stop_training),
            "learning_rate": self._model.learning_rate,
            "callbacks": [
                self._state_of(*each) for each in zip(self._callbacks, self._made, self._digests, strict=True)
            ],
        }

    def _state_of(self, callback: Any, made: Mapping[str, Any], digests: Mapping[str, bytes]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        begins_again = False
        for name, value in vars(callback).items():
            is_made = name in digests and value is made[name] and _digest(value) == digests[name]
            if name in _OF_KERAS or is_made:
                continue
            try:
                attributes[name] = dump(value)
            except NotPlainError:
                begins_again |= made.get(name) is not value
        return {"attributes": attributes, "begins_again": begins_again}

    def restore(self, state: Mapping[str, Any], epoch: int) -> None:
        """Continue from the state of another process; ``epoch``: whose hooks run next, from 0."""
        for callback, stored in zip(self._callbacks, state["callbacks"], strict=True):
            is_csv = isinstance(callback, keras.callbacks.CSVLogger)
            if is_csv:
                callback.append = True
                _remove_rows(Path(callback.filename), callback.sep, self._initial_epoch + epoch)
            if stored["begins_again"]:
                with user_code(self._path, f"{type(callback).__name__}.on_train_begin()"):
                    callback.on_train_begin({})
            header = callback.append_header if is_csv else None
            vars(callback).update({name: load(value) for name, value in stored["attributes"].items()})
            if is_csv:
                callback.append_header = header
        self._model.stop_training = state["stop_training"]
        if state["learning_rate"] is not None:
            self._model.optimizer.learning_rate = state["learning_rate"]


def _is_large(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.nbytes >= _DIGESTED_BYTES_MIN and not value.dtype.hasobject


def _digest(array: np.ndarray[Any, Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()


def _fit_order(name: str) -> tuple[bool, bool, str]:
    return name.startswith("val_"), not name.endswith("loss"), name


def _why(callback: Any) -> str:
    if isinstance(callback, keras.callbacks.EarlyStopping):
        return f": {callback.monitor} has not improved in {callback.wait} epoch{'s' if callback.wait > 1 else ''}"
    return ""


def _remove_rows(file: Path, separator: str, epoch: int) -> None:
    """Remove the last rows of a CSVLogger from this epoch on: a process has written them and died before its result.

    The bytes before them stay, because another process may have the file open behind them.
    """
    if not file.exists():
        return
    header, *rows = file.read_bytes().splitlines(keepends=True) or [b""]
    while rows and int(rows[-1].partition(separator.encode())[0]) >= epoch:
        rows.pop()
    os.truncate(file, len(header) + sum(map(len, rows)))


class NotPlainError(TypeError):
    """The value is not plain data."""


def dump(value: Any) -> Any:
    """JSON values for numbers, text, None, lists, tuples, sets, dicts, NumPy values and Keras' own functions."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    match value:
        case list():
            return [dump(each) for each in value]
        case tuple() if type(value) is tuple:
            return {"tuple": [dump(each) for each in value]}
        case set():
            return {"set": [dump(each) for each in value]}
        case dict() if type(value) is dict:
            return {"dict": [[dump(key), dump(each)] for key, each in value.items()]}
        case np.generic() | np.ndarray() if value.dtype.kind in "biuf":
            return {"array": [value.dtype.str, isinstance(value, np.ndarray), value.tolist()]}
        case FunctionType() if _is_of_keras(value.__module__):
            return {"function": [value.__module__, value.__qualname__]}
        case _:
            raise NotPlainError(type(value).__name__)


def load(stored: Any) -> Any:
    """Inverse of ``dump``."""
    if isinstance(stored, list):
        return [load(each) for each in stored]
    if not isinstance(stored, dict):
        return stored
    ((kind, content),) = stored.items()
    match kind:
        case "tuple":
            return tuple(load(each) for each in content)
        case "set":
            return {load(each) for each in content}
        case "dict":
            return {load(key): load(each) for key, each in content}
        case "array":
            kind, is_array, values = content
            array = np.array(values, kind)
            return array if is_array else array[()]
        case _:
            module, name = content
            if not _is_of_keras(module):
                raise NotPlainError(f"function {module}.{name}")
            return getattr(importlib.import_module(module), name)


def _is_of_keras(module: str) -> bool:
    """Only Keras' functions are looked up by name: writers to the storage must not choose others."""
    return module == "keras" or module.startswith("keras.")
