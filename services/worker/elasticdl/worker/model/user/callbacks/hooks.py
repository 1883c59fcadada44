"""Runs the hooks of callbacks between two epochs, and keeps their state in plain data."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import keras
import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import NOTE_CHARS_MAX
from elasticdl.shared.storage import to_uri
from elasticdl.worker.core.commands import MergeResult, RunCallbacks
from elasticdl.worker.model.user.calls import user_code

_OF_KERAS = ("_model", "params")
"""Attributes that ``set_model`` and ``set_params`` set."""


SaveModel = Callable[[str, Mapping[str, str]], None]
"""(URI of a file, ps -> the instance that has the model) -> the file is written."""
WriteSummaries = Callable[[int, bool, Mapping[str, str]], None]
"""(epoch from 0, whether with the graph, ps -> the instance that has the model) -> the event file is written."""


class CallbackModel:
    """``self.model`` of a callback: whether training stops, the learning rate, and the model as a file."""

    def __init__(
        self, learning_rate: float, *, has_schedule: bool, path: Path, save: SaveModel, summarize: WriteSummaries
    ) -> None:
        # Stands for the user's optimizer. Keras refuses to set a rate that has a schedule.
        schedule = keras.optimizers.schedules.ExponentialDecay(learning_rate, 1, 1.0)
        self.optimizer = keras.optimizers.SGD(schedule if has_schedule else learning_rate)
        self.stop_training = False
        self.metrics: list[Any] = []
        self.instances: Mapping[str, str] = {}
        """ps -> the instance that has the model at the end of the epoch whose hooks run; empty: none has ended."""
        self._has_schedule = has_schedule
        self._path = path
        self._save = save
        self._summarize = summarize

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
        self._summarize(epoch, graph, self.instances)

    def _write(self, filepath: str | os.PathLike[str], suffix: str, what: str, overwrite: bool) -> None:
        place = f"{self._path}: a callback calls self.model.{what}"
        if not self.instances:
            raise UserError(f"{place} where no epoch has ended", hint="Call it in on_epoch_end().")
        if not os.fspath(filepath).endswith(suffix) or not overwrite:
            raise UserError(f"{place} for {filepath}", hint=f"Give a name that ends in {suffix}, and overwrite=True.")
        self._save(to_uri(os.fspath(filepath)), self.instances)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UserError(
            f"{self._path}: a callback uses self.model.{name}, but the weights are on the parameter servers",
            hint="Callbacks can use self.model.stop_training, self.model.optimizer.learning_rate, "
            "self.model.save() and self.model.save_weights().",
        )


class Hooks:
    """The callbacks of a job as live objects; ``params`` of ``fit()``: ``verbose``, ``epochs`` and ``steps``."""

    def __init__(self, callbacks: list[Any], model: CallbackModel, params: Mapping[str, int], path: Path) -> None:
        self._callbacks = callbacks
        self._model = model
        self._path = path
        self._made = [dict(vars(callback)) for callback in callbacks]
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
        epoch, is_start = command.number // 2, command.number % 2 == 1
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
            "callbacks": [self._state_of(*each) for each in zip(self._callbacks, self._made, strict=True)],
        }

    def _state_of(self, callback: Any, made: Mapping[str, Any]) -> dict[str, Any]:
        attributes: dict[str, Any] = {}
        begins_again = False
        for name, value in vars(callback).items():
            if name in _OF_KERAS:
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
                _remove_rows(Path(callback.filename), callback.sep, epoch)
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
