"""Starts jobs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elasticdl.api import in_memory
from elasticdl.api.commands import run, split_secrets
from elasticdl.api.in_memory import is_in_memory
from elasticdl.api.job import Job
from elasticdl.api.passed_model import model_file
from elasticdl.cli.flag_values import as_flags, with_choices
from elasticdl.cli.jobs.accepted import JOB_FILE_VARIABLE, JOB_VARIABLE
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import flags_of, types_of
from elasticdl.shared.kubernetes.options import KubernetesFlags


def train(model_def: Any, training_data: Any, *, wait: bool = True, shows: bool = True, **flags: Any) -> Job:
    """Train a model, as ``elasticdl train`` does.

    Args:
        model_def: the model file, ``module.symbol``, or a compiled Keras model, with whose weights training begins.
        training_data: file, folder or glob, local or ``s3://``. For a Keras model also what its ``fit()`` takes: ``x``,
            ``(x, y)``, ``(x, y, sample_weight)``, or a data set. Then ``validation_data`` is given in the same way, and
            the model has the trained weights afterwards.
        wait: return when the job has ended; otherwise as soon as it was accepted.
        flags: the flags of ``elasticdl train`` by name, and for data in memory ``epochs``, ``batch_size``,
            ``callbacks``, ``class_weight``, ``validation_split`` and others of ``fit()``. Booleans for switches, dicts
            for ``NAME=VALUE`` items (``model_params={"units": 32}``), lists for several values
            (``columns=["id", "label"]``).

    Returns:
        The job, ended successfully if ``wait``.

    Raises:
        TypeError: there is no such flag.
        UserError: the input is wrong; nothing is left of the job.
        ElasticDLError: the job has failed or was stopped.
        KeyboardInterrupt: the user interrupted the call. A job that was accepted continues.
    """
    if not is_in_memory(training_data):
        values = {"model_def": model_def, "training_data": training_data, **flags}
        return _start("train", TrainFlags, values, wait, shows)
    job_id, values = in_memory.written(model_def, training_data, flags)
    with in_memory.removed_unless_started(job_id, values):
        job = _start("train", TrainFlags, values, wait, shows, job_id)
    if wait:
        in_memory.load_weights(model_def, job_id, values)
    return job


def evaluate(
    model_def: Any,
    model: str | Path,
    validation_data: str | Path,
    *,
    wait: bool = True,
    shows: bool = True,
    **flags: Any,
) -> Job:
    """Evaluate a model, as ``elasticdl evaluate`` does; the result is in ``metrics``.

    Args:
        model_def: the model file, ``module.symbol``, or a compiled Keras model.
        model: the output folder of a training job, a ``.keras`` file, or the name or id of a job.
        validation_data: file, folder or glob, local or ``s3://``.
        wait: return when the job has ended; otherwise as soon as it was accepted.
        flags: the flags of ``elasticdl evaluate``; see ``train``.

    Returns, raises: as ``train``.
    """
    values = {"model_def": model_def, "model": model, "validation_data": validation_data, **flags}
    return _start("evaluate", EvaluateFlags, values, wait, shows)


def predict(
    model_def: Any,
    model: str | Path,
    prediction_data: str | Path,
    output: str | Path,
    *,
    wait: bool = True,
    shows: bool = True,
    **flags: Any,
) -> Job:
    """Write predictions, as ``elasticdl predict`` does.

    Args:
        model_def: the model file, ``module.symbol``, or a compiled Keras model.
        model: the output folder of a training job, a ``.keras`` file, or the name or id of a job.
        prediction_data: file, folder or glob, local or ``s3://``.
        output: a new folder for the predictions, local or ``s3://``.
        wait: return when the job has ended; otherwise as soon as it was accepted.
        flags: the flags of ``elasticdl predict``; see ``train``.

    Returns, raises: as ``train``.
    """
    data = {"prediction_data": prediction_data, "output": output}
    values = {"model_def": model_def, "model": model, **data, **flags}
    return _start("predict", PredictFlags, values, wait, shows)


def _start(command: str, owner: type, values: Mapping[str, Any], wait: bool, shows: bool, job_id: str = "") -> Job:
    """Start a job.

    Args:
        owner: declares the flags of the command.
        job_id: of a job whose folder has its model and data; empty: a new one.
    """
    known = {**flags_of(owner), **flags_of(KubernetesFlags)}
    flags = {name: flag for name, flag in known.items() if name != "detach"}
    values = with_choices(values, types_of(owner))
    with model_file(values["model_def"]) as model_def:
        shown, secrets = split_secrets({**values, "model_def": model_def}, flags)
        with tempfile.NamedTemporaryFile("r", prefix="elasticdl-job-") as file:
            arguments = [*as_flags(shown, flags, command), "--detach"]
            envs = {JOB_FILE_VARIABLE: file.name, **({JOB_VARIABLE: job_id} if job_id else {})}
            output = run(command, *arguments, secrets=secrets, shows=shows, envs=envs)
            accepted = file.read()
    if not accepted:
        raise ElasticDLError(f"elasticdl {command} has not started a job: {output.strip()}")
    job = Job(accepted, run_dir=values.get("run_dir") or "", namespace=values.get("namespace") or "")
    return job.wait(shows=shows) if wait else job
