"""The callbacks of the model file: which of them can run without ``fit()``, and their hooks between two epochs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.spec import BestModel, JobSpec
from elasticdl.shared.storage import scheme_of, to_uri
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
GRAPH_NOTE = "TensorBoard: the graph of the model is written with the first histograms, so give histogram_freq"


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
        model_folder: the same of one that saves more than weights.
    """

    names: tuple[str, ...] = ()
    best: BestModel | None = None
    tensorboard_log_dir: str = ""
    checkpoint_folder: str = ""
    model_folder: str = ""
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
        checkpoint_folder=folder_of(filter(is_checkpoint, made)),
        model_folder=folder_of(each for each in made if is_checkpoint(each) and not each.save_weights_only),
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
        raise UserError(
            f"{place}, but the job has no validation data",
            hint="Give --validation_data; in a script, validation_data of fit().",
        )
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


def is_checkpoint(callback: Any) -> bool:
    """Whether a callback is Keras' own or a subclass, which may have more hooks of epochs."""
    return isinstance(callback, keras.callbacks.ModelCheckpoint)


def check_checkpoint(callback: Any, path: Path) -> None:
    """Refuse what a job can't write."""
    kind = type(callback).__name__
    if callback.save_freq != "epoch":
        raise UserError(
            f"{path}: {kind} can't work with this save_freq, because no process sees every batch",
            hint="Remove save_freq, or give save_freq='epoch'.",
        )
    if not callback.filepath.endswith((".keras", ".weights.h5")):
        raise UserError(
            f"{path}: {kind} can't write {callback.filepath!r}, because jobs don't write Keras' former HDF5 format",
            hint="Give a filepath that ends in .keras. With save_weights_only=True it ends in .weights.h5.",
        )


def check_file_name(callback: Any, path: Path, metrics: Collection[str]) -> None:
    """Format the name of a file as Keras will do at the end of an epoch.

    Raises:
        UserError: the name asks for a result that the job does not have, or formats one in a way that does not exist.
    """
    place = f"{path}: {type(callback).__name__} can't format its filepath {callback.filepath!r}"
    try:
        callback.filepath.format(epoch=1, **dict.fromkeys(metrics, 0.5))
    except (KeyError, IndexError) as error:
        name = error.args[0] if isinstance(error, KeyError) else "a field without a name"
        raise UserError(
            f"{place}: an epoch has no result {name}", hint=f"It can have: {', '.join(['epoch', *metrics])}."
        ) from error
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{place}: {error}", hint="Use fields such as {epoch:02d} and {loss:.2f}.") from error


def folder_of(checkpoints: Iterable[Any]) -> str:
    """URI of the folder in which the first ``ModelCheckpoint`` writes files; empty if absent."""
    for callback in checkpoints:
        return to_uri(os.path.dirname(callback.filepath) or ".")
    return ""


def write_through_store(callback: Any) -> None:
    """Have a ``ModelCheckpoint`` whose files are in object storage make no folders, which Keras would try to do."""
    if scheme_of(to_uri(callback.filepath)) != "file":
        callback._save_model = partial(_save_model, callback)


def _save_model(callback: Any, epoch: int, batch: int | None, logs: Mapping[str, float]) -> None:
    filepath = callback._get_file_path(epoch, batch, logs)
    if callback._should_save_model(epoch, batch, logs, filepath):
        save = callback.model.save_weights if callback.save_weights_only else callback.model.save
        save(filepath, overwrite=True)


class WeightHistograms(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes histograms of the weights every ``histogram_freq`` epochs, and with the first ones the graph.

    Args:
        histogram_freq: epochs between two histograms; Keras writes those of epochs 0, N, 2N...
    """

    def __init__(self, histogram_freq: int, *, write_graph: bool) -> None:
        super().__init__()
        self.histogram_freq = histogram_freq
        self.write_graph = write_graph

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras' signature)
        """Write the file of this epoch, from 0, if it is due; a second attempt replaces it."""
        if epoch % self.histogram_freq == 0:
            self.model.write_summaries(epoch, graph=self.write_graph and epoch == 0)


def histograms_of(callback: Any) -> WeightHistograms | None:
    """The hooks of a ``TensorBoard`` callback; None: it has no histograms, so none of its hooks run."""
    if not callback.histogram_freq:
        return None
    return WeightHistograms(callback.histogram_freq, write_graph=bool(callback.write_graph))


def is_tensorboard(callback: Any) -> bool:
    """Whether a callback is Keras' own; a subclass may have hooks that need the model."""
    return type(callback) is keras.callbacks.TensorBoard


def check_tensorboard(callback: Any, path: Path) -> None:
    """Refuse what only a process with the whole model, or that sees every batch, could write."""
    weights = "the weights are on the parameter servers"
    batches = "no process sees every batch"
    refused = {
        "embeddings_freq": (callback.embeddings_freq, 0, weights),
        "write_images": (bool(callback.histogram_freq and callback.write_images), False, weights),
        "update_freq": (callback.update_freq, "epoch", batches),
        "profile_batch": (callback._should_trace, False, batches),
    }
    for argument, (value, possible, reason) in refused.items():
        if value != possible:
            default = "0" if possible == 0 and possible is not False else repr(possible)
            raise UserError(
                f"{path}: TensorBoard can't work with this {argument}, because {reason}",
                hint=f"Remove {argument}, or give {argument}={default}.",
            )


def log_dir_of(callbacks: Sequence[Any], path: Path) -> str:
    """URI of the ``TensorBoard`` callback's folder; empty if absent. Several with different folders: ``UserError``."""
    folders = sorted({callback.log_dir for callback in callbacks if is_tensorboard(callback)})
    if len(folders) > 1:
        raise UserError(
            f"{path}: several TensorBoard callbacks have different folders: {', '.join(folders)}",
            hint="Keep one of them.",
        )
    return to_uri(folders[0]) if folders else ""
