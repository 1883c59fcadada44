"""``train(model, (x, y))``: a model and data that exist in this process only become a job as those of ``fit()``."""

from __future__ import annotations

import inspect
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elasticdl.cli.opening import root_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import KERAS_FILE, WEIGHTS_ALONE
from elasticdl.shared.job.spec import Strategy
from elasticdl.shared.names import job_name, new_job_id

ALIASES = {"epochs": "num_epochs", "batch_size": "minibatch_size"}
"""Argument of ``fit()`` -> the flag that says the same."""
_OF_FIT = (
    "callbacks", "class_weight", "initial_epoch", "sample_weight", "steps_per_epoch", "validation_batch_size",
    "validation_split", "validation_steps",
)  # fmt: skip
"""Arguments of ``fit()`` that are no flags."""


def is_in_memory(training_data: Any) -> bool:
    """Whether data is given as itself, and not as the path of files."""
    return not isinstance(training_data, str | Path)


def written(model: Any, data: Any, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Write a model and its data into the folder of a new job.

    Args:
        data: what ``fit()`` takes: ``x``, ``(x, y)``, ``(x, y, sample_weight)``, or a data set that gives such batches.
        values: flags of ``train``, and arguments of ``fit()``.

    Returns:
        The job's id and the flags.

    Raises:
        UserError: no job can train the model with the data; nothing is written.
    """
    if not hasattr(model, "compiled"):
        raise UserError(
            f"the data is given as {type(data).__name__}, and the model as {type(model).__name__}",
            hint="Data in memory needs a compiled Keras model; a model file needs the path of its data.",
        )
    if values.get("platform") == "kubernetes":
        raise UserError(
            "data in memory can't be given to a job on Kubernetes",
            hint="Write it to files in object storage, or call fit() in a script: elasticdl run --platform=kubernetes.",
        )
    import keras

    from elasticdl.cli.script import callbacks, fit

    flags = {name: value for name, value in values.items() if name not in (*_OF_FIT, *ALIASES)}
    given = {name: values[name] for name in _OF_FIT if name in values}
    shuffle = flags.pop("shuffle", True)
    if not isinstance(shuffle, bool):
        flags["shuffle"], shuffle = shuffle, True
    validation = flags.pop("validation_data", None)
    if validation is not None and not is_in_memory(validation):
        raise UserError(
            f"validation_data={validation} is a path, and the training data is not",
            hint="Give both as arrays, or both as paths.",
        )
    epochs, batch_size = (
        values.get(fits, flags.pop(ours, default))
        for (fits, ours), default in zip(ALIASES.items(), (1, None), strict=True)
    )
    x, y, weights = data, None, given.pop("sample_weight", None)
    if isinstance(data, tuple):
        x, y, given_weights = keras.utils.unpack_x_y_sample_weight(data)
        weights = weights if given_weights is None else given_weights
    given["callbacks"] = callbacks.taken(given.get("callbacks"))
    given |= {"sample_weight": weights, "validation_data": validation, "shuffle": shuffle}
    call = inspect.signature(inspect.unwrap(keras.Model.fit)).bind(
        model, x, y, epochs=epochs, batch_size=batch_size, **given
    )
    call.apply_defaults()
    name = str(flags.get("job_name") or job_name(model.name, otherwise="model"))
    job = new_job_id(name)
    folder = _folder(job, flags)
    has_ring = flags.get("distribution_strategy") == Strategy.ALLREDUCE.value
    made = fit.written(model, call.arguments, folder, _place(), name, has_ring=has_ring)
    if flags.get("output"):
        del made["output"], made["export_weights"]
    return job, {**made, **flags}


@contextmanager
def removed_unless_started(job: str, flags: Mapping[str, Any]) -> Iterator[None]:
    """Remove the folder of a job that an error in this block has kept from starting."""
    try:
        yield
    except BaseException:
        folder = _folder(job, flags)
        if not (folder / "job.json").exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise


def load_weights(model: Any, job: str, flags: Mapping[str, Any]) -> None:
    """Give the model the trained weights and its optimizer its state, if the job has left them on this machine."""
    from elasticdl.cli.script import fit, optimizer_state

    file = Path(flags["output"]) / (WEIGHTS_ALONE if flags.get("export_weights") else KERAS_FILE)
    if file.exists():
        fit.load_weights(model, file)
        record = _folder(job, flags) / "job.json"
        if record.exists():
            optimizer_state.restore_or_say(model, json.loads(record.read_text())["storage"], job)


def _folder(job: str, flags: Mapping[str, Any]) -> Path:
    return root_of(Path(flags["run_dir"]) if flags.get("run_dir") else None) / job


def _place() -> Path:
    """The file that calls, or one in the working directory: modules beside it travel with the model."""
    return Path(getattr(sys.modules["__main__"], "__file__", None) or "notebook").absolute()
