"""One call of ``fit()``: its model, data and arguments become a job, and the job's result that of the call."""

from __future__ import annotations

import contextlib
import inspect
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np

from elasticdl.cli.script import arrays, callbacks, continuing, optimizer_state
from elasticdl.cli.script.call_data import CallData, Columns, data_of, few_of, pass_over
from elasticdl.cli.script.fit_lines import FitLines, has_rate, shown
from elasticdl.cli.script.launcher import EarlyRun, JobInterrupt, Launchers
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.names import job_name, new_job_id
from elasticdl.shipping import shipped
from elasticdl.shipping.columns import Array, Layout
from elasticdl.shipping.numbered import structured
from elasticdl.shipping.own_steps import check_optimizers, has_own_step, optimizers_of, overrides, try_step

LARGE_BYTES = 64 << 20
"""On this machine, arrays from this size on are written while the model is checked, smaller ones before that."""

_NUMBERED = re.compile(r"(.+)\.(\d+)")
"""A number of a metric whose result is an array."""


def fit(model: Any, original: Any, args: Any, kwargs: Any, launchers: Launchers, script: Path) -> Any:
    """Train a model as a job; the counterpart of ``keras.Model.fit``.

    Args:
        original: Keras' own ``fit``, whose arguments these are.

    Returns:
        The ``keras.callbacks.History`` of the call.

    Raises:
        UserError: something that the call is given can't become a job.
        JobError: the job has failed.
        JobInterrupt: the user has interrupted the job.
    """
    bound = inspect.signature(original).bind(model, *args, **kwargs)
    bound.apply_defaults()
    given = {**bound.arguments, "callbacks": callbacks.taken(bound.arguments["callbacks"])}
    check(model, given, has_ring=continuing.has_ring(launchers.flags))
    if given["epochs"] <= given["initial_epoch"]:
        return _history(model, [], given)
    try:
        if job := launchers.former():
            read = not _is_ready(model)
            if read:
                _build(model, *few_of(given))
            pass_over(given, int(read))
            if not _is_quiet(given):
                sys.stdout.write(f"fit() takes the result of job {job}\n")
        else:
            job = _trained(model, given, launchers, script)
    except JobInterrupt as interrupt:  # The script may catch it, and then has a model that is trained so far.
        storage = launchers.place.stopped_in(interrupt.job)
        if storage and optimizer_state.restore_interrupted(model, storage, interrupt.job):
            continuing.note(model, interrupt.job)
        elif launchers.place.is_there(interrupt.job):
            sys.stderr.write(f"The model {model.name} has the weights from before this fit().\n")
        raise
    with launchers.place.results(job) as results:
        load_weights(model, results.weights)
        if (
            results.storage
            and (reason := optimizer_state.restore(model, results.storage, job))
            and not _is_quiet(given)
        ):
            sys.stdout.write(optimizer_state.sentence(model, job, reason))
        if results.storage and given["callbacks"]:
            callbacks.restore(given["callbacks"], model, results.storage)
    continuing.note(model, job)
    return _history(model, results.epochs, given, results.batches_per_epoch)


def _trained(model: Any, given: Mapping[str, Any], launchers: Launchers, script: Path) -> str:
    """Run the job; returns its id."""
    name = launchers.flags.job_name or job_name(script.stem)
    job = new_job_id(name)
    quiet = _is_quiet(given)
    if not quiet:
        sys.stdout.write(f"Preparing job {job} for fit() of the model {model.name!r}\n")
        sys.stdout.flush()
    folder = launchers.root / job
    is_here = launchers.place.is_here
    files = prepared(model, given, folder, script, name, reads_here=is_here)
    values = files.values | continuing.flags_to_continue(model)
    if reason := continuing.reason_to_restart(model):  # Also with verbose=0: the results differ.
        sys.stdout.write(f"The optimizer of {model.name} starts from scratch: {reason}.\n")
        sys.stdout.flush()
    early = None
    try:
        if is_here and files.are_large:
            early = EarlyRun(first=files.write_first(), write=files.write_with_index)
        else:
            files.write()
        values = launchers.place.ship(job, values)
        launchers.note(job, script)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(ElasticDLError):
            launchers.place.remove(job)
        raise
    show = FitLines(given).show if launchers.as_fit and not quiet else None
    replace = values["model_def"], str(script)
    launchers.run(job, values, quiet=quiet or show is not None, replace=replace, show=show, early=early)
    return job


def _is_quiet(given: Mapping[str, Any]) -> bool:
    return given["verbose"] in (0, "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFiles:
    """The files of a call in the folder of its job: its model, and its data, which remains to be written.

    Attributes:
        values: flags of ``train``.
        data: flag -> columns of the file that it names.
    """

    folder: Path
    values: dict[str, Any]
    data: Mapping[str, Columns]

    @property
    def are_large(self) -> bool:
        """Whether the model is checked while the data is written."""
        return sum(array.nbytes for columns in self.data.values() for array in columns.values()) >= LARGE_BYTES

    def write(self, write: Callable[[Path, Columns], None] = arrays.write) -> None:
        """Write the data, each file with a function."""
        for flag, columns in self.data.items():
            write(Path(self.values[flag]), columns)
        for part in ("stream", "validation_stream"):
            shutil.rmtree(self.folder / part, ignore_errors=True)

    def write_with_index(self, before_part: Callable[[], None]) -> None:
        """Write the data and its index; see ``arrays``."""
        self.write(partial(arrays.write_with_index, before_part=before_part))

    def write_first(self) -> dict[str, str]:
        """Write the records of one batch; returns flags of their files."""
        count = self.values["minibatch_size"]
        files = {flag: self.folder / "first" / Path(self.values[flag]).name for flag in self.data}
        for flag, columns in self.data.items():
            arrays.write(files[flag], {name: array[:count] for name, array in columns.items()})
        return {flag: str(file) for flag, file in files.items()}


def written(
    model: Any, given: Mapping[str, Any], folder: Path, script: Path, name: str, *, has_ring: bool = False
) -> dict[str, Any]:
    """``check`` a call, and write its model and its data as ``prepared`` says; returns flags of ``train``."""
    check(model, given, has_ring=has_ring)
    files = prepared(model, given, folder, script, name)
    try:
        files.write()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return files.values


def prepared(
    model: Any, given: Mapping[str, Any], folder: Path, script: Path, name: str, *, reads_here: bool = True
) -> CallFiles:
    """Write the model of a call that is checked into the folder of its job, and find how its data will be written.

    Args:
        given: the arguments of ``fit()``, by their names.
        folder: absent; of an error nothing stays in it.
        script: modules in its folder travel by value.
        name: of the job.
        reads_here: whether workers see the files of this machine, so that they can read data by number.
    """
    try:
        data = data_of(given, folder, script, reads_here=reads_here)
        _build(model, data.layout, data.few)
        file = shipped.write(folder / "model", script, model, data.layout, given, name.replace("-", "_"), data.sources)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return _files(given["epochs"] - given["initial_epoch"], data, folder, file)


def load_weights(model: Any, file: Path) -> None:
    """Give a model the weights of a job's output; its optimizer stays as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The optimizer of the file has no state.
        model.load_weights(file)


def check(model: Any, given: Mapping[str, Any], *, has_ring: bool) -> None:
    """Refuse, by name and before anything is written, what no job can do.

    Args:
        has_ring: every worker has a replica of the model (AllreduceStrategy).
    """
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"Keras runs on {keras.backend.backend()} in this script, and jobs run Keras on TensorFlow",
            hint="Set KERAS_BACKEND=tensorflow.",
        )
    if not model.compiled:
        raise UserError(f"the model {model.name!r} is not compiled", hint="Call its compile() before fit().")
    check_optimizers(model, replicated=has_ring)
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
    if given["initial_epoch"]:
        for one in keras.tree.flatten(given["callbacks"] or []):
            if isinstance(one, keras.callbacks.TensorBoard) or getattr(one, "start_from_epoch", False):
                raise UserError(
                    f"fit() is given initial_epoch and the callback {type(one).__name__}, which counts the epochs of "
                    "the job",
                    hint="Leave one of them out, and start_from_epoch of EarlyStopping.",
                )


def _is_ready(model: Any) -> bool:
    return bool(model.built and model.weights) and not _has_several(model)


def _has_several(model: Any) -> bool:
    """Whether the model's own step has several optimizers, so that only a call of it shows what they move."""
    return overrides(model, "train_step") and len(optimizers_of(model)) > 1


def _build(model: Any, layout: Layout, few: Mapping[str, Array]) -> None:
    """Make the weights of a model that waits for its first call."""
    if _is_ready(model):
        return
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in few.items()}
    features, labels, weights = structured(layout, tensors)
    if _has_several(model):
        optimizer_state.note_movers(model, try_step(model, "train_step", features, labels, weights).movers)
    elif has_own_step(model):  # Its call() may take something else than x.
        try_step(model, "train_step", features, labels, weights)
    else:
        model(features, training=False)


def _files(epochs: int, data: CallData, folder: Path, file: Path) -> CallFiles:
    columns = {"training_data": data.training}
    values: dict[str, Any] = {
        "model_def": str(file),
        "training_data": str(folder / "data" / "training.npz"),
        "output": str(folder / "output"),
        "export_weights": True,
        "num_epochs": epochs,
        "minibatch_size": data.batch_size,
        # By itself a job shuffles .npz files only within tasks, because they may be compressed. This one is not.
        "shuffle": (Shuffle.GLOBAL if data.shuffle else Shuffle.NONE).value,
    }
    if data.validation is not None:
        values["validation_data"] = str(folder / "data" / "validation.npz")
        columns["validation_data"] = data.validation
    return CallFiles(folder=folder, values=values, data=columns)


def _history(model: Any, epochs: list[Mapping[str, Any]], given: Mapping[str, Any], steps: int | None = None) -> Any:
    """What ``fit()`` returns, from the curves of the job; ``steps``: batches of an epoch."""
    history = keras.callbacks.History()
    history.set_model(model)
    history.set_params({"verbose": given["verbose"], "epochs": given["epochs"], "steps": steps})
    history.on_train_begin()
    for place, epoch in enumerate(epochs):
        validation = {f"val_{name}": value for name, value in epoch["validation"].items()}
        logs = {"loss": epoch["loss"], **epoch["metrics"], **validation, "learning_rate": epoch.get("learning_rate")}
        history.on_epoch_end(given["initial_epoch"] + place, with_arrays(shown(logs, given)))
    if has_rate(given) and epochs and (last := epochs[-1].get("learning_rate")) is not None:
        model.optimizer.learning_rate = last
    model.history = history
    return history


def with_arrays(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The logs of an epoch, in which the numbers ``name.0``, ``name.1``... of a metric are one array."""
    parts: dict[str, dict[int, float]] = {}
    for name, value in logs.items():
        if numbered := _NUMBERED.fullmatch(name):
            parts.setdefault(numbered[1], {})[int(numbered[2])] = value
    # A metric can be called "within_1.0".
    parts = {name: numbers for name, numbers in parts.items() if len(numbers) > name[-1].isdigit()}
    found: dict[str, Any] = {}
    for name, value in logs.items():
        numbered = _NUMBERED.fullmatch(name)
        numbers = parts.get(numbered[1], {}) if numbered else {}
        if numbered and numbers and numbered[1] not in logs and sorted(numbers) == list(range(len(numbers))):
            found[numbered[1]] = np.array([numbers[place] for place in range(len(numbers))])
        else:
            found[name] = value
    return found
