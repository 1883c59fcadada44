"""One call of ``fit()``: its model, data and arguments become a job, and the job's result that of the call."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from elasticdl.cli.script import arrays, continuing, streams
from elasticdl.cli.script.launcher import Launchers
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.names import job_name, new_job_id
from elasticdl.shipping import shipped
from elasticdl.shipping.own_steps import check_optimizers, has_own_step, overrides, try_step

BATCH_SIZE = 32
"""Records of a batch of a ``fit()`` without ``batch_size``."""
_BUILT_WITH = 2
"""Records with which a model is called that has no weights yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of ``fit()``, checked. ``validation`` is None or columns as ``training``."""

    given: Mapping[str, Any]
    layout: shipped.Layout
    training: dict[str, arrays.Array]
    validation: dict[str, arrays.Array] | None
    epochs: int
    batch_size: int
    shuffle: bool


def fit(model: Any, original: Any, args: Any, kwargs: Any, launchers: Launchers, script: Path) -> Any:
    """Train a model as a job; the counterpart of ``keras.Model.fit``.

    Args:
        original: Keras' own ``fit``, whose arguments these are.

    Returns:
        The ``keras.callbacks.History`` of the call.

    Raises:
        UserError: something that the call is given can't become a job.
        JobError: the job has failed or was interrupted.
    """
    bound = inspect.signature(original).bind(model, *args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    check(model, given)
    if given["epochs"] <= given["initial_epoch"]:
        return _history(model, [], given)
    if job := launchers.former():
        _build(model, *_first_batch(given))
    else:
        job = _trained(model, given, launchers, script)
    with launchers.place.results(job) as results:
        load_weights(model, results.weights)
    continuing.note(model, job)
    return _history(model, results.epochs, given)


def _trained(model: Any, given: Mapping[str, Any], launchers: Launchers, script: Path) -> str:
    """Run the job; returns its id."""
    name = launchers.flags.job_name or job_name(script.stem)
    job = new_job_id(name)
    folder = launchers.root / job
    values = written(model, given, folder, script, name)
    values |= continuing.flags_to_continue(model, launchers.flags)
    try:
        values = launchers.place.ship(job, values)
        launchers.note(job, script)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(ElasticDLError):
            launchers.place.remove(job)
        raise
    quiet = given["verbose"] in (0, "0")
    launchers.run(job, values, quiet=quiet, replace=(values["model_def"], str(script)))
    return job


def written(model: Any, given: Mapping[str, Any], folder: Path, script: Path, name: str) -> dict[str, Any]:
    """Write what workers need of a call into the folder of its job.

    Args:
        given: the arguments of ``fit()``, by their names.
        folder: absent; of an error nothing stays in it.
        script: modules in its folder travel by value.
        name: of the job.

    Returns:
        Flags of ``train``.
    """
    check(model, given)
    try:
        call = _with_data(given, folder)
        _build(model, call.layout, call.training)
        file = shipped.write(folder / "model", script, model, call.layout, given, name.replace("-", "_"))
        values = _values(call, folder, file)
        for part in ("stream", "validation_stream"):
            shutil.rmtree(folder / part, ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return values


def load_weights(model: Any, file: Path) -> None:
    """Give a model the weights of a job's output; its optimizer stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The optimizer of the file has no state.
        model.load_weights(file)


def check(model: Any, given: Mapping[str, Any]) -> None:
    """Refuse, by name and before anything is written, what no job can do."""
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"Keras runs on {keras.backend.backend()} in this script, and jobs run Keras on TensorFlow",
            hint="Set KERAS_BACKEND=tensorflow.",
        )
    if not model.compiled:
        raise UserError(f"the model {model.name!r} is not compiled", hint="Call its compile() before fit().")
    check_optimizers(model)
    is_validated = given["validation_data"] is not None or bool(given["validation_split"])
    if is_validated and not overrides(model, "call") and not overrides(model, "test_step") and has_own_step(model):
        raise UserError(
            f"{type(model).__name__} has neither call() nor test_step(), and fit() is given validation data",
            hint="Define test_step(self, data), or leave out the validation data.",
        )
    if given["validation_freq"] != 1:
        raise UserError(
            f"validation_freq={given['validation_freq']} of fit(): a job evaluates after every epoch",
            hint="Leave it out.",
        )
    if not isinstance(given["shuffle"], bool):
        raise UserError(f"shuffle={given['shuffle']!r} of fit() is not supported", hint="Give True or False.")
    if given["class_weight"] and given["sample_weight"] is not None:
        raise UserError(
            "fit() is given class_weight and sample_weight, and takes one of them",
            hint="Multiply the weights of the classes into sample_weight.",
        )
    if given["initial_epoch"] and given["callbacks"]:
        raise UserError(
            "fit() is given initial_epoch and callbacks, but the callbacks of a job count its own epochs",
            hint="Leave one of them out.",
        )


def _with_data(given: Mapping[str, Any], folder: Path) -> Call:
    """The data of the call; a data set that gives batches is written into the folder."""
    batch_size = given["batch_size"] or BATCH_SIZE
    shuffle, split = given["shuffle"], given["validation_split"]
    if streams.is_stream(given["x"]):
        if split and given["validation_data"] is None:
            raise UserError(
                "fit() is given validation_split and a dataset",
                hint="Divide the dataset with take() and skip(), and give one part as validation_data.",
            )
        stream = streams.read(given["x"], given["steps_per_epoch"], folder / "stream", shuffle=shuffle)
        layout, training, batch_size, shuffle = stream
    else:
        layout, training = arrays.laid_out(given["x"], given["y"], given["sample_weight"])
        steps = -(-arrays.records_of(training) // batch_size)
        if given["steps_per_epoch"] not in (None, steps):
            raise UserError(
                f"steps_per_epoch={given['steps_per_epoch']} of fit() with arrays of {steps:,} batches",
                hint=streams.STEPS_HINT,
            )
    validation = None
    if given["validation_data"] is not None:
        validation = _validation(given, batch_size, folder)
    elif split:
        at = int(np.floor(arrays.records_of(training) * (1.0 - split)))
        if at in (0, arrays.records_of(training)):
            raise UserError(f"validation_split={split} of fit() leaves one part without records")
        validation = {name: array[at:] for name, array in training.items()}
        training = {name: array[:at] for name, array in training.items()}
    layout, training, validation = _with_weights(layout, training, validation)
    return Call(
        given=given,
        layout=layout,
        training=training,
        validation=validation,
        epochs=given["epochs"] - given["initial_epoch"],
        batch_size=batch_size,
        shuffle=shuffle,
    )


def _validation(given: Mapping[str, Any], batch_size: int, folder: Path) -> dict[str, arrays.Array]:
    data, steps = given["validation_data"], given["validation_steps"]
    if streams.is_stream(data):
        return streams.read(data, steps, folder / "validation_stream").columns
    _, columns = arrays.laid_out(*keras.utils.unpack_x_y_sample_weight(data))
    arrays.records_of(columns)
    if not steps:
        return columns
    kept = steps * (given["validation_batch_size"] or batch_size)
    return {name: array[:kept] for name, array in columns.items()}


def _with_weights(
    layout: shipped.Layout, training: dict[str, arrays.Array], validation: dict[str, arrays.Array] | None
) -> tuple[shipped.Layout, dict[str, arrays.Array], dict[str, arrays.Array] | None]:
    """Both data sets with the same columns: a sample weight of 1 changes nothing."""
    if validation is None or training.keys() == validation.keys():
        return layout, training, validation
    missing = training.keys() ^ validation.keys()
    if any(not name.startswith("sample_weight") for name in missing):
        raise UserError(
            f"the training data of fit() has {', '.join(training)}, its validation data {', '.join(validation)}"
        )
    for one, other in ((training, validation), (validation, training)):
        for name in one.keys() - other.keys():
            other[name] = np.ones((len(next(iter(other.values()))), *one[name].shape[1:]), one[name].dtype)
    return shipped.Layout(features=layout.features, labels=layout.labels, weights="sample_weight"), training, validation


def _first_batch(given: Mapping[str, Any]) -> tuple[shipped.Layout, dict[str, arrays.Array]]:
    """Some records of the training data, for a model without weights whose job has trained already."""
    if streams.is_stream(data := given["x"]):
        first = data[0] if isinstance(data, keras.utils.PyDataset) else next(iter(data))
        return arrays.laid_out(*keras.utils.unpack_x_y_sample_weight(first))
    return arrays.laid_out(data, given["y"], given["sample_weight"])


def _build(model: Any, layout: shipped.Layout, columns: Mapping[str, arrays.Array]) -> None:
    """Make the weights of a model that waits for its first call."""
    if model.built and model.weights:
        return
    few = {name: keras.ops.convert_to_tensor(array[:_BUILT_WITH]) for name, array in columns.items()}
    features, labels, weights = (
        None if part is None else keras.tree.map_structure(few.__getitem__, part)
        for part in (layout.features, layout.labels, layout.weights)
    )
    if overrides(model, "call") or not has_own_step(model):
        model(features, training=False)
    else:
        try_step(model, "train_step", features, labels, weights)


def _values(call: Call, folder: Path, file: Path) -> dict[str, Any]:
    """The flags of the job; writes its data."""
    values: dict[str, Any] = {
        "model_def": str(file),
        "training_data": str(folder / "data" / "training.npz"),
        "output": str(folder / "output"),
        "export_weights": True,
        "num_epochs": call.epochs,
        "minibatch_size": call.batch_size,
        # By itself a job shuffles .npz files only within tasks, because they may be compressed. This one is not.
        "shuffle": (Shuffle.GLOBAL if call.shuffle else Shuffle.NONE).value,
    }
    arrays.write(Path(values["training_data"]), call.training)
    if call.validation is not None:
        values["validation_data"] = str(folder / "data" / "validation.npz")
        arrays.write(Path(values["validation_data"]), call.validation)
    return values


def _history(model: Any, epochs: list[Mapping[str, Any]], given: Mapping[str, Any]) -> Any:
    """What ``fit()`` returns, from the curves of the job."""
    kinds = (keras.callbacks.ReduceLROnPlateau, keras.callbacks.LearningRateScheduler)
    has_rate = any(isinstance(callback, kinds) for callback in keras.tree.flatten(given["callbacks"] or []))
    history = keras.callbacks.History()
    history.set_model(model)
    history.on_train_begin()
    for place, epoch in enumerate(epochs):
        validation = {f"val_{name}": value for name, value in epoch["validation"].items()}
        rate = {"learning_rate": epoch.get("learning_rate")} if has_rate else {}
        logs = {"loss": epoch["loss"], **epoch["metrics"], **validation, **rate}
        history.on_epoch_end(given["initial_epoch"] + place, logs)
    if has_rate and epochs and (last := epochs[-1].get("learning_rate")) is not None:
        model.optimizer.learning_rate = last
    model.history = history
    return history
