"""From flags to a job: everything that can be wrong is found here, before anything is started."""

from __future__ import annotations

import difflib
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from elasticdl.cli.submission.flags import TrainFlags, parse_envs
from elasticdl.cli.submission.model_digest import combined, file_digests
from elasticdl.cli.submission.preflight import check_places
from elasticdl.shared.data import (
    DataSchema,
    IndexStore,
    PlannedData,
    Reader,
    ReaderOptions,
    broken_link,
    plan_sources,
)
from elasticdl.shared.errors import UserError
from elasticdl.shared.job import model_file
from elasticdl.shared.job.plan import Plan, Shuffle
from elasticdl.shared.job.spec import DataSpec, JobSpec, ModelSpec
from elasticdl.shared.names import JOB_NAME_CHARS_MAX, JobId, TaskId, check_job_name, new_job_id
from elasticdl.shared.storage import join, open_store, to_uri

Progress = Callable[[str], None]
_SEED_BITS = 32
"""A seed that was not given has this many random bits: few enough to be typed again."""
STRINGS_SHOWN = 6
_ZOO_DATA = MappingProxyType({"mnist": "mnist", "census": "census", "deepfm": "deepfm"})
"""Beginning of a zoo model's file name -> its example data's name in ``elasticdl zoo data``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job that is ready to be started, and what its run directory has to keep.

    Attributes:
        spec: the job.
        model_files: digests of the model file and the modules beside it.
        data: the training data's facts.
        validation: the validation data's facts, if there is any.
        options: how both are read.
    """

    spec: JobSpec
    model_files: dict[str, str]
    data: PlannedData
    validation: PlannedData | None
    options: ReaderOptions

    def save_indices(self) -> None:
        """Keep the data's indices in the job's storage, where workers find them.

        Raises:
            UserError: the storage refuses.
        """
        saved = IndexStore.of_job(self.spec.storage)
        for planned in (self.data, self.validation):
            for index in planned.indices if planned else ():
                saved.save(index, self.options)


def shipped_model_zoo() -> Path | None:
    """The model zoo that came with this package: inside it in a wheel, at the root of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    candidates = (package / "model_zoo", package.parents[1] / "model_zoo")
    return next((folder for folder in candidates if folder.is_dir()), None)


def prepare(flags: TrainFlags, root: Path, progress: Progress) -> Submission:
    """Check the flags against the world and plan the job; starts nothing and leaves nothing behind.

    Args:
        flags: what was typed.
        root: the run directories' root; a job without ``--storage`` keeps its snapshots there.
        progress: told what takes time.

    Raises:
        UserError: what is wrong, and what to do about it.
    """
    flags.check()
    model, digests = _model(flags)
    job = new_job_id(flags.job_name or _job_name(Path(model.path).stem))
    options = ReaderOptions(csv_header=flags.csv_header, csv_delimiter=flags.csv_delimiter)
    data = _planned(flags.training_data, "training_data", options, model, progress)
    if text := _columns_text(data.schema):
        progress(text)
    validation = None
    if flags.validation_data:
        validation = _planned(flags.validation_data, "validation_data", options, model, progress, data.schema)
    plan = _training_plan(flags, data)
    spec = JobSpec(
        job=job,
        created_s=time.time(),
        plan=plan,
        checksum=checksum(plan, data),
        data=_data_spec(data.schema, options),
        validation=_validation_plan(plan, validation) if validation else None,
        validation_data=_data_spec(validation.schema, options) if validation else None,
        model=model,
        output=to_uri(flags.output) if flags.output else "",
        storage=_storage(flags, root, job),
        workers=flags.num_workers,
        ps=flags.num_ps_pods,
        snapshot_steps=flags.checkpoint_steps,
        evaluation_steps=flags.evaluation_steps,
        evaluation_interval_s=flags.evaluation_throttle_secs,
        grads_to_wait=flags.grads_to_wait,
        staleness_scaled_rate=flags.lr_staleness_modulation,
        envs=parse_envs(flags.envs),
        log_level=flags.log_level.value,
    )
    check_places(flags, spec)
    return Submission(spec=spec, model_files=digests, data=data, validation=validation, options=options)


def _training_plan(flags: TrainFlags, data: PlannedData) -> Plan:
    return Plan(
        sources=data.sources,
        minibatch_size=flags.minibatch_size,
        minibatches_per_task=flags.num_minibatches_per_task,
        epochs=flags.num_epochs,
        shuffle=Shuffle(flags.shuffle.value),
        seed=secrets.randbits(_SEED_BITS) if flags.seed is None else flags.seed,
        max_step=flags.max_step,
    )


def checksum(plan: Plan, data: PlannedData) -> int:
    """What the hashes of all records of a plan add up to, from the indices; reads data only where ``max_step`` cuts.

    Args:
        plan: the training plan.
        data: its sources and their indices.
    """
    epochs = plan.tasks // plan.tasks_per_epoch
    cut = epochs > 0 and plan.tasks == epochs * plan.tasks_per_epoch and plan.records != epochs * plan.records_per_epoch
    whole = epochs - 1 if cut else epochs  # The last task of the last epoch may be shortened too.
    sum_ = whole * sum(index.total for index in data.indices)
    rest = range(whole * plan.tasks_per_epoch, plan.tasks)
    if rest:
        reader = Reader(
            store=open_store(data.sources[0].uri),
            sources=data.sources,
            schema=data.schema,
            index=lambda number: data.indices[number],
        )
        sum_ += sum(reader.checksum(plan.shard(TaskId(task))) for task in rest)
    return sum_ & ((1 << 64) - 1)


def _model(flags: TrainFlags) -> tuple[ModelSpec, dict[str, str]]:
    search = [Path.cwd()]
    if flags.model_zoo:
        zoo = Path(flags.model_zoo).expanduser().absolute()
        if not zoo.is_dir():
            raise UserError(f"--model_zoo={flags.model_zoo} is not a folder", usage=True)
        search.append(zoo)
    shipped = shipped_model_zoo()
    if shipped:
        search.append(shipped)
    file = model_file.resolve(flags.model_def, tuple(search))
    model_file.check_syntax(file)
    digests = file_digests(file.path)
    spec = ModelSpec(
        path=str(file.path),
        symbol=file.symbol,
        params=model_file.parse_params(flags.model_params),
        digest=combined(digests),
        eager=flags.eager,
    )
    return spec, digests


def _planned(
    path: str,
    flag: str,
    options: ReaderOptions,
    model: ModelSpec,
    progress: Progress,
    schema: DataSchema | None = None,
) -> PlannedData:
    _check_exists(path, flag, model)
    progress(f"reading {path}")
    return plan_sources(path, options, open_store(path), schema=schema)


def _columns_text(schema: DataSchema) -> str:
    """``columns: 13 float64, 1 int64, string: city, job``; one bad value makes a column of numbers one of strings."""
    kinds = Counter(column.type for column in schema.columns)
    strings = [column.name for column in schema.columns if column.type == "string"]
    parts = [f"{count} {kind}" for kind, count in sorted(kinds.items()) if kind != "string"]
    if strings:
        more = f" and {len(strings) - STRINGS_SHOWN} more" if len(strings) > STRINGS_SHOWN else ""
        parts.append(f"string: {', '.join(strings[:STRINGS_SHOWN])}{more}")
    return f"columns: {', '.join(parts)}" if parts else ""


def _check_exists(path: str, flag: str, model: ModelSpec) -> None:
    """Name what is there, or the command that makes the example data, where a local path does not exist."""
    if "://" in path or re.search(r"[*?\[]", path):
        return
    local = Path(path).expanduser()
    if local.exists():
        return
    if local.is_symlink():
        raise broken_link(local)
    stem = Path(model.path).stem
    data = next((name for prefix, name in _ZOO_DATA.items() if stem.startswith(prefix)), None)
    if data:
        hint = f"Write the example data there with: elasticdl zoo data {data} {local.parent}"
    elif local.parent.is_dir():
        near = difflib.get_close_matches(local.name, [entry.name for entry in local.parent.iterdir()], n=1)
        hint = f"Did you mean {local.parent / near[0]}?" if near else f"{local.parent} exists; check the last name."
    else:
        hint = f"{local.parent} does not exist either."
    raise UserError(f"--{flag}={path} does not exist", hint=hint, usage=True)


def _job_name(stem: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:JOB_NAME_CHARS_MAX].strip("-") or "job"
    check_job_name(name)
    return name


def _data_spec(schema: DataSchema, options: ReaderOptions) -> DataSpec:
    return DataSpec(
        format=schema.format.value,
        column_names=schema.metadata.column_names,
        column_types=schema.metadata.column_types,
        csv_header=options.csv_header,
        csv_delimiter=schema.csv_delimiter,
    )


def _validation_plan(plan: Plan, data: PlannedData) -> Plan:
    return Plan(
        sources=data.sources,
        minibatch_size=plan.minibatch_size,
        minibatches_per_task=plan.minibatches_per_task,
        epochs=1,
        shuffle=Shuffle.NONE,
        seed=plan.seed,
    )


def _storage(flags: TrainFlags, root: Path, job: JobId) -> str:
    place = flags.storage or flags.checkpoint_dir
    return join(to_uri(place), job) if place else to_uri(root / job / "storage")
