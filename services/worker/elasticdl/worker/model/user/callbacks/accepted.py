"""The callbacks of the model file: which of them can run without ``fit()``, and their hooks between two epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import BestModel, JobSpec
from elasticdl.worker.model.user.callbacks.checkpoint import (
    check_checkpoint,
    check_file_name,
    folder_of,
    is_checkpoint,
    write_through_store,
)
from elasticdl.worker.model.user.callbacks.tensorboard import (
    GRAPH_NOTE,
    check_tensorboard,
    histograms_of,
    is_tensorboard,
    log_dir_of,
)
from elasticdl.worker.model.user.calls import user_code
from elasticdl.worker.model.user.first_elasticdl import Replaced
from elasticdl.worker.model.user.module import UserModule

DEFAULT_FUNCTION = "callbacks"
_INSTEAD = {
    "BackupAndRestore": "remove it: snapshots are always taken, and elasticdl resume JOB continues from them",
    "TensorBoard": "use keras.callbacks.TensorBoard itself. The master writes its curves",
    "SwapEMAWeights": "remove it: moving averages of weights are not kept",
    "ProgbarLogger": "remove it: the job shows its progress",
}
_BATCH_HOOKS = tuple(
    f"on_{kind}{place}"
    for kind in ("", "train_", "test_", "predict_")
    for place in ("batch_begin", "batch_end", "begin", "end")
    if f"on_{kind}{place}" not in ("on_begin", "on_end", "on_train_begin", "on_train_end")
)
"""Hooks of batches, and of ``evaluate()`` and ``predict()``."""


_RATE_SETTERS = (keras.callbacks.LearningRateScheduler, keras.callbacks.ReduceLROnPlateau)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What ``fit()`` would know from the compiled model.

    Attributes:
        directions: metric -> ``up`` if more is better, ``down`` if less is, empty if Keras does not know.
        has_schedule: whether the optimizer has a learning-rate schedule.
    """

    directions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    has_schedule: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCallbacks:
    """The callbacks of a model file.

    Attributes:
        best: the model that ``EarlyStopping(restore_best_weights=True)`` restores; None: none does.
        tensorboard_log_dir: URI of the folder of ``TensorBoard``; empty if absent.
        checkpoint_folder: URI of the folder of ``ModelCheckpoint``; empty if absent.
    """

    names: tuple[str, ...] = ()
    best: BestModel | None = None
    tensorboard_log_dir: str = ""
    checkpoint_folder: str = ""
    notes: tuple[str, ...] = ()


def make_callbacks(module: UserModule, name: str = "") -> list[Any]:
    """Call the function that returns the callbacks; without ``TerminateOnNaN``, as such a loss always ends the job.

    Args:
        name: of the function; empty: ``callbacks``, if there is one.

    Raises:
        UserError: it does not return a list of Keras callbacks, or one of them can't run.
    """
    function = module.required(name) if name else module.function(DEFAULT_FUNCTION)
    if function is None:
        return []
    name = name or DEFAULT_FUNCTION
    with user_code(module.path, f"{name}()"):
        returned = function()
        if returned is None:
            raise UserError(
                f"{module.path}: {name}() returns nothing, so the job would have no callbacks",
                hint="End it with return and a list of callbacks. A job without callbacks needs no such function.",
            )
        made = [each for each in returned if not isinstance(each, Replaced)]
    for callback in made:
        if not isinstance(callback, keras.callbacks.Callback):
            kind = type(callback).__name__
            raise UserError(f"{module.path}: {name}() must return Keras callbacks, not {kind}")
        _refuse(callback, module.path)
    return [callback for callback in made if not isinstance(callback, keras.callbacks.TerminateOnNaN)]


def with_hooks(made: list[Any]) -> list[Any]:
    """The callbacks whose hooks run. Of ``TensorBoard`` it is the one that writes histograms, if it has any."""
    hooks = [histograms_of(callback) if is_tensorboard(callback) else callback for callback in made]
    return [callback for callback in hooks if callback is not None]


def _refuse(callback: Any, path: Path) -> None:
    if is_tensorboard(callback):
        check_tensorboard(callback, path)
        return
    for kind in type(callback).__mro__:
        if kind.__module__.startswith("keras.") and kind.__name__ in _INSTEAD:
            raise UserError(
                f"{path}: the callback {kind.__name__} needs the weights or the batches in its own process",
                hint=f"Instead: {_INSTEAD[kind.__name__]}.",
            )
    if isinstance(callback, keras.callbacks.TerminateOnNaN):
        return
    base = keras.callbacks.Callback
    if is_checkpoint(callback):
        check_checkpoint(callback, path)
        base = keras.callbacks.ModelCheckpoint
    for hook in _BATCH_HOOKS:
        if hook in vars(callback) or getattr(type(callback), hook) is not getattr(base, hook):
            raise UserError(
                f"{path}: the callback {type(callback).__name__} has {hook}(), but no process sees every batch",
                hint="Use hooks of epochs: on_train_begin, on_epoch_begin, on_epoch_end, on_train_end.",
            )


def check_callbacks(made: list[Any], path: Path, spec: JobSpec, facts: ModelFacts) -> FoundCallbacks:
    """Whether callbacks can work in a job.

    Raises:
        UserError: a callback monitors or writes a value that the job does not have, or sets a rate that the
            optimizer's schedule gives.
    """
    best: BestModel | None = None
    for callback in made:
        if facts.has_schedule and isinstance(callback, _RATE_SETTERS):
            raise UserError(
                f"{path}: {type(callback).__name__} can't set the learning rate, because optimizer() has a schedule",
                hint="Give optimizer() a number as its learning rate, or remove the callback.",
            )
        if is_checkpoint(callback):
            check_file_name(callback, path, _results(spec, facts.directions))
        if isinstance(getattr(callback, "monitor", None), str) and not _ignores_monitor(callback):
            _check_monitor(callback, path, spec, facts.directions)
        if isinstance(callback, keras.callbacks.EarlyStopping) and callback.restore_best_weights:
            best = _best(callback, path, facts.directions)
    if best and spec.best not in (None, best):
        raise UserError(
            f"{path}: EarlyStopping(restore_best_weights=True) and the flags both say which model is the best",
            hint="Remove restore_best_weights, or --save_best and --early_stopping_patience.",
        )
    return FoundCallbacks(
        names=tuple(type(callback).__name__ for callback in with_hooks(made)),
        best=best,
        tensorboard_log_dir=log_dir_of(made, path),
        checkpoint_folder=folder_of(made),
        notes=(GRAPH_NOTE,) if any(map(_lacks_graph, made)) else (),
    )


def _lacks_graph(callback: Any) -> bool:
    return is_tensorboard(callback) and bool(callback.write_graph) and not callback.histogram_freq


def _results(spec: JobSpec, directions: Mapping[str, str]) -> list[str]:
    """Names of the results that each epoch has."""
    is_evaluated = spec.validation is not None and spec.evaluate_epochs
    return [*directions, *(f"val_{name}" for name in directions if is_evaluated)]


def _ignores_monitor(callback: Any) -> bool:
    """Whether a ``ModelCheckpoint`` saves every epoch, and its monitor is Keras' default."""
    return is_checkpoint(callback) and not callback.save_best_only and callback.monitor == "val_loss"


def _check_monitor(callback: Any, path: Path, spec: JobSpec, directions: Mapping[str, str]) -> None:
    place = f"{path}: {type(callback).__name__} monitors {callback.monitor!r}"
    metric = callback.monitor.removeprefix("val_")
    known = [*directions, *(f"val_{name}" for name in directions if spec.validation)]
    if callback.monitor != metric and spec.validation is None:
        raise UserError(f"{place}, but the job has no validation data", hint="Give --validation_data.")
    if callback.monitor != metric and not spec.evaluate_epochs:
        raise UserError(f"{place}, but epochs are not evaluated", hint="Give --evaluate_every=epoch.")
    if callback.monitor not in known:
        raise UserError(f"{place}, which is no metric of this job", hint=f"Its metrics: {', '.join(known)}.")
    if callback.mode == "auto" and not directions[metric]:
        raise UserError(f"{place}, and Keras does not know whether more is better", hint="Give mode='min' or 'max'.")


def _best(callback: Any, path: Path, directions: Mapping[str, str]) -> BestModel:
    if not callback.monitor.startswith("val_"):
        raise UserError(
            f"{path}: EarlyStopping can't restore the weights of the epoch with the best {callback.monitor!r}",
            hint="Only evaluated versions are kept: monitor a metric of the validation data, val_loss for instance.",
        )
    metric = callback.monitor.removeprefix("val_")
    return BestModel(
        metric=metric,
        is_max=callback.mode == "max" or (callback.mode == "auto" and directions[metric] == "up"),
        min_delta=float(callback.min_delta),
        save=True,
        from_epoch=int(callback.start_from_epoch),
    )


def prepare(callbacks: list[Any], directions: Mapping[str, str]) -> None:
    """Do what ``fit()`` knows from the compiled model: whether more is better, for ``mode='auto'``.

    The job itself restores the best weights, see ``FoundCallbacks.best``.
    """
    for callback in callbacks:
        if getattr(callback, "mode", "") == "auto" and isinstance(getattr(callback, "monitor", None), str):
            direction = directions.get(callback.monitor.removeprefix("val_"), "")
            callback.mode = {"up": "max", "down": "min"}.get(direction, "auto")
        if isinstance(callback, keras.callbacks.EarlyStopping):
            callback.restore_best_weights = False
        if is_checkpoint(callback):
            write_through_store(callback)
