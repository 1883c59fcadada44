"""From flags to a job specification. All input is checked here, before any process is started."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.submission.flag_items import data_cache, parse_envs, split_secrets
from elasticdl.cli.submission.initial_model import find_initial_model
from elasticdl.cli.submission.plan_data import Progress, plan_data, reader_function
from elasticdl.cli.submission.preflight import check_destinations
from elasticdl.cli.submission.seed import with_seed
from elasticdl.shared.data import IndexStore, PlannedData, Reader
from elasticdl.shared.data.formats.gzip_content import SUFFIX
from elasticdl.shared.data.hashing import Hashes
from elasticdl.shared.data.indices import IndexFile
from elasticdl.shared.data.planning import Scan
from elasticdl.shared.data.schema import spec_of
from elasticdl.shared.errors import InvariantError, PermanentError, UserError, file_errors
from elasticdl.shared.job import model_file
from elasticdl.shared.job.job_options import JobFlags
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.model_digest import combined, file_digests
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.job.options import values_for
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import InitialModel, JobSpec, ModelSpec
from elasticdl.shared.names import JobId, TaskId, job_name, new_job_id
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.storage import display, join, open_store, to_uri
from elasticdl.zoo import best_reachable, shipped_model_zoo

_GLOBAL_BYTES_MAX = 256 << 20
"""Data up to this size is shuffled as a whole by default: the page cache or the workers' data cache holds it."""
_COMPRESSED = (SUFFIX, ".npz")
"""Names of files that are decompressed from a mark up to each range that is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that is ready to start.

    Attributes:
        secret_envs: variables of ``--envs`` that the event log must not have.
    """

    spec: JobSpec
    model_files: dict[str, str]
    data: PlannedData
    validation: PlannedData | None
    secret_envs: Mapping[str, str]

    def save_indices(self, storage: str) -> None:
        """Write the data's indices to a job's storage, where workers read them."""
        for planned in (self.data, self.validation):
            if planned is not None:
                IndexStore.of_job(storage, planned.sources, planned.options).save(planned.indices)

    def with_data(self, flags: TrainFlags, scan: Scan) -> Submission:
        """The job with the data of other flags, which has the same columns; ``scan``: indexes it."""
        data, validation = plan_data(flags, self.spec.model, lambda _: None, scan=scan)
        spec = replace(self.spec, **_of_data(flags, data, validation))
        if (spec.data, spec.validation_data) != (self.spec.data, self.spec.validation_data):
            raise InvariantError(f"the first records have other columns than all: {self.spec.data}, {spec.data}")
        return replace(self, spec=spec, data=data, validation=validation)

    def with_passed_model(self, run: RunDirectory) -> Submission:
        """The job with its model in its folder, if that was passed to the Python API as an object; else as it is."""
        file = Path(self.spec.model.path)
        if not model_file.is_passed_model(file):
            return self
        with file_errors(f"the model can't be copied to {run.model}", PermanentError):
            shutil.copytree(file.parent, run.model)
        model = replace(self.spec.model, path=str(run.model / file.name))
        return replace(self, spec=replace(self.spec, model=model))

    def share_indices(self) -> None:
        """Write the data's indices to where the next job with the same data finds them."""
        for planned in (self.data, self.validation):
            if planned is not None and planned.shared is not None and isinstance(planned.indices, IndexFile):
                planned.shared.save(planned.indices)


def prepare(
    flags: TrainFlags,
    root: Path | None,
    progress: Progress,
    job: JobId | None = None,
    initial: InitialModel | None = None,
    *,
    forks: ForkServers | None = None,
) -> Submission:
    """Check model, data and destinations, and plan the job. Leaves no file.

    Starts no process, unless the model file defines a reader for the data.

    Args:
        root: folder of the run directories; snapshots of a job without ``--storage`` go there. None: the job has no run
            directory, and ``flags`` name its storage.
        job: its id; None: a new one.
        initial: the model that it starts from, if that was read before.
        forks: their server of the workers starts a process that reads the data, if the model file does that.
    """
    flags.check()
    flags = with_seed(flags)
    model, digests = model_of(flags)
    flags = _with_reader(flags, model)
    job = job or new_job_id(flags.job_name or job_name(Path(model.path).stem))
    envs, secret_envs = split_secrets(parse_envs(flags.envs))
    destinations = data_cache(flags) | _checked_destinations(flags, root, job)
    initial = _initial_model(flags, initial, root, progress)
    # The names of files that were written for this job would say nothing.
    is_own = root is not None and Path(flags.training_data).is_relative_to(root / job)
    say: Progress = (lambda _: None) if is_own else progress
    data, validation = plan_data(flags, model, say, forks, shared_indices_of(flags))
    spec = JobSpec(
        job=job,
        created_s=SystemClock().now(),
        model=model,
        envs=envs,
        best=flags.best,
        initial=initial,
        grads_to_wait=flags.batches_per_update,
        learning_rate_scale=flags.learning_rate_scale,
        synchronous=flags.is_synchronous,
        max_staleness=flags.staleness_bound,
        staleness_by_workers=flags.staleness_by_workers,
        strategy=flags.strategy,
        **_of_data(flags, data, validation),
        **destinations,
        **flags.job_values,
    )
    return Submission(spec=spec, model_files=digests, data=data, validation=validation, secret_envs=secret_envs)


def _of_data(flags: TrainFlags, data: PlannedData, validation: PlannedData | None) -> dict[str, Any]:
    """What a job's specification says of its data."""
    plan = _training_plan(flags, data)
    return {
        "plan": plan,
        "checksum": checksum(plan, data),
        "data": spec_of(data.schema, csv_header=flags.csv_header),
        "validation": _validation_plan(plan, validation) if validation else None,
        "validation_data": spec_of(validation.schema, csv_header=flags.csv_header) if validation else None,
        "metrics_best": _metrics_best(validation),
        "epoch_checksum": sum(index.total for index in data.indices) & ((1 << 64) - 1),
        "evaluate_epochs": flags.evaluates_epochs and validation is not None,
    }


def _initial_model(
    flags: TrainFlags, initial: InitialModel | None, root: Path | None, progress: Progress
) -> InitialModel | None:
    """What the job starts from; ``initial``: that, if it was read before."""
    if flags.initial_model and initial is None:
        initial = find_initial_model(flags.initial_model, root, progress)
    if not flags.initial_optimizer:
        return initial
    if initial is None or not initial.job:
        raise UserError(
            "--initial_optimizer needs --initial_model=JOB, whose snapshots have the optimizer's state",
            hint="Give the name or id of a job. A file has no such state.",
            usage=True,
        )
    return replace(initial, has_optimizer=True)


def _with_reader(flags: TrainFlags, model: ModelSpec) -> TrainFlags:
    """The flags with the name of the function in the model file that reads the data, if it has one."""
    reader = reader_function(flags, model)
    if reader and flags.shuffle is Shuffle.GLOBAL:
        raise UserError(
            f"--shuffle=global is not possible with {reader}() of {model.path}, whose ranges begin at minibatches",
            hint="Let the reader give its records in a random order, and shuffle records within tasks.",
            usage=True,
        )
    return replace(flags, custom_data_reader=reader)


def _checked_destinations(flags: TrainFlags, root: Path | None, job: JobId) -> dict[str, Any]:
    """URIs to which the job can write; empty: it writes nothing there."""
    uris = {
        "output": to_uri(flags.output) if flags.output else "",
        "storage": storage_of(flags, root, job),
        "tensorboard_log_dir": to_uri(flags.tensorboard_log_dir) if flags.tensorboard_log_dir else "",
    }
    check_destinations(flags, RunDirectory(root, job) if root else None, **uris)
    return uris


def _training_plan(flags: TrainFlags, data: PlannedData) -> Plan:
    settings = values_for("Plan", flags) | {
        "shuffle": flags.shuffle or _default_shuffle(data),
        "minibatch_size": flags.records_per_minibatch,
    }
    return Plan(sources=data.sources, **settings)


def _default_shuffle(data: PlannedData) -> Shuffle:
    """All records are shuffled, as ``fit`` does, where reading them from 16 places at a time costs little."""
    if data.schema.reader:
        return Shuffle.RECORDS
    size = 0
    for source in data.sources:
        size += source.size_bytes
        if size > _GLOBAL_BYTES_MAX or source.uri.lower().endswith(_COMPRESSED):
            return Shuffle.RECORDS
    return Shuffle.GLOBAL


def checksum(plan: Plan, data: PlannedData) -> int:
    """The sum of the hashes of all records of a plan, modulo 2**64.

    It comes from the indices. Only tasks that ``max_step`` shortens are read.
    """
    epochs = plan.tasks // plan.tasks_per_epoch
    cut = epochs > 0 and plan.tasks == epochs * plan.tasks_per_epoch and plan.records != epochs * plan.records_per_epoch
    whole = epochs - 1 if cut else epochs  # The last task of the last epoch may be shortened too.
    sum_ = whole * sum(index.total for index in data.indices)
    rest = range(whole * plan.tasks_per_epoch, plan.tasks)
    if rest and data.schema.reader:
        shards = [shard for task in rest for shard in plan.shards(TaskId(task))]
        sum_ += sum(data.indices[each.source].checksum(each.start, each.end, _unread) for each in shards)
    elif rest:
        reader = Reader(
            store=open_store(data.sources[0].uri),
            sources=data.sources,
            schema=data.schema,
            index=lambda number: data.indices[number],
        )
        sum_ += sum(reader.checksum(shard) for task in rest for shard in plan.shards(TaskId(task)))
    return sum_ & ((1 << 64) - 1)


def _unread(start: int, end: int) -> Hashes:
    """Indices of data that the model file reads have a mark at each minibatch, so no task needs a record's hash."""
    raise AssertionError(f"records {start} to {end} are not between marks")


def find_model(model_def: str, model_zoo: str) -> ModelFile:
    """Find the model file: in the working directory, in the user's model zoo, or in that of this package."""
    search = [Path.cwd()]
    if model_zoo:
        zoo = Path(model_zoo).expanduser().absolute()
        if not zoo.is_dir():
            raise UserError(f"--model_zoo={model_zoo} is not a folder", usage=True)
        search.append(zoo)
    shipped = shipped_model_zoo()
    if shipped:
        search.append(shipped)
    found = model_file.resolve(model_def, tuple(search))
    to_uri(found.path)  # Refuses a name that is not UTF-8, which no message can hold.
    return found


def model_of(flags: JobFlags) -> tuple[ModelSpec, dict[str, str]]:
    """The model of a job, and the digests of its file and of the modules beside it."""
    file = find_model(flags.model_def, flags.model_zoo)
    names_feed = not flags.functions.keys().isdisjoint(model_file.FEEDS)
    file = replace(file, functions={**({} if names_feed else file.functions), **flags.functions})
    model_file.check_syntax(file)
    for name in ("label", "sample_weight"):
        if getattr(flags, name) and model_file.has_feed(file):
            raise UserError(f"--{name} has no effect, because {file.path} has a feed", usage=True)
    digests = file_digests(file.path)
    spec = ModelSpec(
        path=str(file.path),
        symbol=file.symbol,
        params=model_file.parse_params(flags.model_params),
        digest=combined(digests),
        functions=file.functions,
        **values_for("ModelSpec", flags),
    )
    return spec, digests


def _validation_plan(plan: Plan, data: PlannedData) -> Plan:
    return Plan(
        sources=data.sources,
        minibatch_size=plan.minibatch_size,
        minibatches_per_task=plan.minibatches_per_task,
        epochs=1,
        shuffle=Shuffle.NONE,
        seed=plan.seed,
    )


def _metrics_best(validation: PlannedData | None) -> dict[str, float]:
    """The best possible metrics on the validation data, if the data set states them."""
    if validation is None or validation.schema.reader:
        return {}
    return dict(best_reachable(Path(display(validation.sources[0].uri)).parent))


def storage_of(flags: JobFlags, root: Path | None, job: JobId) -> str:
    """URI of the folder for the snapshots of a job. Raises ``UserError`` without a run directory and ``--storage``."""
    place = flags.storage or flags.checkpoint_dir
    if place:
        return join(to_uri(place), job)
    if root is None:
        raise UserError("a job on Kubernetes has no folder of its own; give --storage=s3://BUCKET/PREFIX", usage=True)
    return to_uri(root / job / "storage")


def shared_indices_of(flags: JobFlags) -> str:
    """URI of the folder for the indices that the jobs of one ``--storage`` share; empty: there is none."""
    place = flags.storage or flags.checkpoint_dir
    return join(to_uri(place), ".indices") if place else ""
