"""Builds a job's model and opens its data; with ``elasticdl.worker.model`` the only code that needs TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.shared.data.schema import schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile, literal_params
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.process.running_batches import RunningBatchesFile
from elasticdl.worker.execution.input_lane import Dataset
from elasticdl.worker.input.job_data import first_batch, open_records
from elasticdl.worker.model.export.export import check_export, export
from elasticdl.worker.model.export.keras_file import loading_notes
from elasticdl.worker.model.fingerprint.fingerprint import Fingerprint, fingerprint
from elasticdl.worker.model.fingerprint.graphs import remember_tables
from elasticdl.worker.model.runner import ModelRunner, RunnerSettings
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load
from elasticdl.worker.model.user.randomness import seed_process
from elasticdl.worker.ports import Floats, Ids

_THREADS = "TF_NUM_INTEROP_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A job's model and its data.

    Attributes:
        runner: the model.
        training: the training data.
        validation: the validation data, if there is any.
        export_notes: what the user has to know about the files that will be exported.
    """

    runner: ModelRunner
    training: Dataset
    validation: Dataset | None
    export_notes: tuple[str, ...] = ()

    def fingerprint(self) -> Fingerprint:
        """What has to be the same in all processes of the job."""
        feeder = self.training.feeder
        assert isinstance(feeder, BatchFeeder)
        return fingerprint(self.runner, feeder)

    def write(self, dense: Floats, rows_of: Callable[[str, Ids], Floats], folder: Path) -> None:
        """Write the model's files into a local folder."""
        export(self.runner, dense, rows_of, folder)


def build(spec: JobSpec, running_batches: RunningBatchesFile) -> Built:
    """Load the user's model, open the data and compile the step.

    Args:
        spec: the job.
        running_batches: records the batch that the model is built with while it is read and fed.

    Raises:
        UserError: the model or the data can't be used, the model could not be exported as it is asked for, or it is
            another one than the job was started with.
    """
    _allow_waiting_steps(spec)
    seed_process(spec.plan.seed)  # The model file may draw random numbers and make tables while it is imported.
    remember_tables()
    file = ModelFile(path=Path(spec.model.path), symbol=spec.model.symbol)
    module = load(file, literal_params(spec.model.params))
    training = _open(spec, module, spec.plan, spec.data, "train")
    validation = None
    if spec.validation is not None:
        data = spec.validation_data or spec.data
        validation = _open(spec, module, spec.validation, data, "evaluate")
    example: Any = first_batch(training.records, training.feeder, running_batches)
    settings = RunnerSettings(seed=spec.plan.seed, eager=spec.model.eager, synchronous=spec.synchronous)
    runner = ModelRunner(module, example, settings)
    export_notes: tuple[str, ...] = ()
    if spec.best is not None and spec.best.metric not in runner.metric_names:
        names = ", ".join(f"val_{name}" for name in runner.metric_names)
        raise UserError(
            f"{module.path} has no metric val_{spec.best.metric}",
            hint=f"Metrics of this model on the validation data: {names}.",
        )
    if spec.output or (spec.best and spec.best.save):
        check_export(runner, spec.limits.export_bytes_max)
        export_notes = tuple(loading_notes(runner))
    built = Built(runner=runner, training=training, validation=validation, export_notes=export_notes)
    if spec.model.fingerprint:
        problem = "this process built a model that differs from the one that the job was started with"
        built.fingerprint().check(Fingerprint.decode(spec.model.fingerprint), module.path, problem)
    return built


def _allow_waiting_steps(spec: JobSpec) -> None:
    """Have TensorFlow start a thread for every step of a round: each of them may block one while it waits for others.

    TensorFlow reads the variable when its first operation runs.
    """
    if spec.synchronous:
        threads = max(int(os.environ.get(_THREADS, "0")), len(os.sched_getaffinity(0)), spec.grads_to_wait + 2)
        os.environ[_THREADS] = str(threads)


def _open(spec: JobSpec, module: UserModule, plan: Plan, data: DataSpec, mode: str) -> Dataset:
    whole_batches = module.function("feed_batch") is not None
    records = open_records(plan, data, spec.storage, whole_batches=whole_batches)
    feeder = BatchFeeder(module, mode, schema_of(data).metadata, eager=spec.model.eager)
    return Dataset(records=records, feeder=feeder)
