"""Builds a job's model and opens its data; with ``elasticdl.worker.model`` the only code that needs TensorFlow."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from functools import partial
from pathlib import Path
from typing import Any

from elasticdl.layers import adapting
from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.schema import schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.exported.writing import Parts, TablesExport
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.model_file import KERAS_FILE, WEIGHTS_ALONE, literal_params
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import DataSpec, ExportTables, JobSpec
from elasticdl.shared.storage import display, open_store, scheme_of
from elasticdl.shared.storage.cache import DataCacheSettings, DataStores
from elasticdl.shared.storage.uris import local_path
from elasticdl.shipping.own_steps import overrides
from elasticdl.shipping.shipped import Shipped
from elasticdl.worker.execution.callback_tasks import ModelAccess
from elasticdl.worker.execution.input_lane import Dataset
from elasticdl.worker.input.bad_record import may_be_about_a_record
from elasticdl.worker.input.job_data import (
    all_columns,
    first_batch,
    name_in_first_batch,
    open_reader,
    open_records,
)
from elasticdl.worker.model.adapted.adapter import ExportedModelAdapter, JobAdapter, adapt_to, refuse_missing, wait_for
from elasticdl.worker.model.build import look_at
from elasticdl.worker.model.export import weight_summaries
from elasticdl.worker.model.export.export import check_export, export_file, export_or_save_weights, whole_model
from elasticdl.worker.model.export.without_tables import choose_tables, loading_notes, write_without_tables
from elasticdl.worker.model.fingerprint.fingerprint import Fingerprint, fingerprint
from elasticdl.worker.model.fingerprint.graphs import remember_tables
from elasticdl.worker.model.initial.files import read_classes
from elasticdl.worker.model.prediction.outputs import ModelOutputs, load_processor
from elasticdl.worker.model.ring_check import check_ring
from elasticdl.worker.model.runner import SWAP_BYTES_MIN, ModelRunner, RunnerSettings
from elasticdl.worker.model.user.callbacks.accepted import (
    FoundCallbacks,
    ModelFacts,
    check_callbacks,
    make_callbacks,
    prepare,
    with_hooks,
)
from elasticdl.worker.model.user.callbacks.hooks import CallbackModel, Hooks
from elasticdl.worker.model.user.calls import UserCodeError, user_code
from elasticdl.worker.model.user.class_names import ClassNames, LabelEncoder, classes_in
from elasticdl.worker.model.user.column_choice import ColumnChoice, Constants
from elasticdl.worker.model.user.compiled import Compiled
from elasticdl.worker.model.user.data_reader import reader_of
from elasticdl.worker.model.user.default_feed import DefaultFeed, Ports
from elasticdl.worker.model.user.feeder import BatchFeeder
from elasticdl.worker.model.user.module import UserModule, load
from elasticdl.worker.model.user.numbered import numbers_of
from elasticdl.worker.model.user.randomness import seed_process
from elasticdl.worker.ports import Floats, Ids
from elasticdl.worker.running_batches import RunningBatches

_THREADS = "TF_NUM_INTEROP_THREADS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A job's model and its data.

    Attributes:
        loading_notes: what the exported files need to be loaded elsewhere.
        outputs: what a prediction job writes; None: the job is of another kind.
        adapter: has the states of layers that are adapted to the training data; None: the model is from a file.
    """

    runner: ModelRunner
    training: Dataset
    validation: Dataset | None
    export_notes: tuple[str, ...] = ()
    loading_notes: tuple[str, ...] = ()
    export_tables: ExportTables = ExportTables.MODEL
    export_weights: bool = False
    kind: JobKind = JobKind.TRAIN
    outputs: ModelOutputs | None = None
    callbacks: FoundCallbacks = field(default_factory=FoundCallbacks)
    adapter: JobAdapter | None = None
    stores: DataStores

    def use_data_of(self, spec: JobSpec) -> None:
        """Read the data of the job as it has started: its model may have been checked with the first records of it."""
        found = [(self.training.records, spec.plan, spec.data)]
        if self.validation is not None and spec.validation is not None:
            found.append((self.validation.records, spec.validation, spec.validation_data or spec.data))
        for records, plan, data in found:
            if records.plan.fingerprint == plan.fingerprint:
                records.plan = plan  # One object for all threads: a plan remembers the last tasks.
            else:
                records.switch_to(plan, open_reader(plan, data, spec.storage, self.stores))

    @property
    def _feeder(self) -> BatchFeeder:
        feeder = self.training.feeder
        assert isinstance(feeder, BatchFeeder)
        return feeder

    def join_calls(self) -> None:
        """Have the ids of training batches found in the call that feeds them."""
        find_ids = self.runner.step.traced("train_ids", self.runner.example.spec)
        if self.kind.trains and find_ids is not None:
            self._feeder.join(find_ids)

    def describe(self) -> list[str]:
        """Lines for the job's start: what the model takes, and what the ps hold."""
        feed = self._feeder.default_feed
        adapted = [f"adapted {each}" for each in self.adapter.adapted] if self.adapter else []
        module = self.runner.module
        weights = [module.weights.note(module.file.symbol)] if module.weights else []
        return [*weights, *([feed.describe()] if feed else []), *adapted, *self.runner.describe()]

    def fingerprint(self) -> Fingerprint:
        """What has to be the same in all processes of the job."""
        return fingerprint(self.runner, self._feeder)

    def make_hooks(self, spec: JobSpec, access: ModelAccess) -> Hooks:
        """The job's callbacks, new objects; ``access`` does what they ask for."""
        module = self.runner.module
        made = with_hooks(make_callbacks(module, spec.model.callbacks))
        prepare(made, self.runner.metric_directions)
        shipped = getattr(module.module, "_SHIPPED", None)
        first = shipped.initial_epoch if isinstance(shipped, Shipped) else 0
        params = {"verbose": 1, "epochs": first + spec.plan.epochs, "steps": spec.plan.batches_per_epoch}
        rate = self.runner.optimizer.optimizer.learning_rate
        has_schedule = self.runner.has_schedule
        model = CallbackModel(rate, has_schedule=has_schedule, path=module.path, access=access)
        return Hooks(made, model, params, module.path, initial_epoch=first)

    def write(self, dense: Floats, rows_of: Callable[[str, Ids], Floats], folder: Path) -> list[str]:
        """Write the model's files into a local folder, or its weights alone if the model can't be exported.

        Returns:
            What the user has to know about files that don't load.
        """
        if self.export_weights:
            export_file(self.runner, dense, rows_of, folder / WEIGHTS_ALONE)
            return []
        return export_or_save_weights(self.runner, dense, rows_of, folder)

    def with_tables(self, spec: JobSpec, dense: Floats, parts: Parts) -> TablesExport:
        """An export of the model with its tables in Parquet, which are read from snapshots."""
        return TablesExport(
            job=spec.job,
            signature=self.runner.signature(),
            dense=dense,
            parts=parts,
            snapshots=open_store(spec.storage),
            adapted=self.adapter.uris if self.adapter else (),
            write_model=partial(write_without_tables, self.runner, dense),
        )

    def write_file(self, dense: Floats, rows_of: Callable[[str, Ids], Floats], file: Path) -> None:
        """Write the model, or its weights, as one local file."""
        export_file(self.runner, dense, rows_of, file)

    def whole_model(self, dense: Floats, rows_of: Callable[[str, Ids], Floats]) -> Any:
        """The model as Keras' object, with its tables. Raises ``UserError``: a table has no size."""
        return whole_model(self.runner, dense, rows_of)

    def summaries(self, dense: Floats, rows_of: Callable[[str, Ids], Floats], epoch: int, *, graph: bool) -> bytes:
        """The event file with histograms of the weights at the end of an epoch."""
        return weight_summaries.encode(self.runner, dense, rows_of, epoch, graph=graph)


class Adapting(StrEnum):
    """How a process gets the states of the layers that are adapted to the training data."""

    ADAPTS = auto()
    WAITS = auto()
    """Another process makes the model at the same time, and adapts them."""
    KNOWS = auto()
    """They were adapted when the job was planned."""


def build(spec: JobSpec, running_batches: RunningBatches, adapts: Adapting = Adapting.KNOWS) -> Built:
    """Load the user's model, open the data and compile the step.

    Raises:
        UserError: the model or the data can't be used, the model could not be exported as it is asked for, or it is
            another one than the job was started with.
    """
    _allow_waiting_steps(spec)
    stores = DataStores(DataCacheSettings.of(spec.data_cache_dir, spec.data_cache_bytes, os.environ))
    module, adapter = _load(spec, adapts, stores)
    running_batches.step()
    ports = None if module.has_feed else _ports_of(spec, module)
    if ports:
        module = replace(module, classes=_classes_of(spec, module, ports, adapter, adapts))
    training, validation = _data_of(spec, module, ports, stores)
    running_batches.step()
    source = training if spec.kind.trains or validation is None else validation
    callbacks = make_callbacks(module, spec.model.callbacks) if spec.kind.trains else []
    settings = _settings(spec, has_callbacks=bool(with_hooks(callbacks)))
    runner = _runner(spec, module, source, running_batches, settings)
    if spec.has_ring:
        check_ring(runner, has_ps=spec.has_tables_beside_ring)
    running_batches.step()
    facts = ModelFacts(directions=runner.metric_directions, has_schedule=runner.has_schedule)
    found = check_callbacks(callbacks, module.path, spec, facts)
    exports = _Exports()
    if spec.best is not None:
        _check_metric(spec.best.metric, runner)
    outputs = None
    saves_models = bool((spec.best and spec.best.save) or found.best or found.checkpoint_folder)
    if spec.prediction is not None:
        outputs = ModelOutputs(runner=runner, processor=load_processor(module, spec.prediction.processor))
    elif spec.output or saves_models:
        exports = _exports_of(spec, module, runner, needs_whole_models=saves_models)
    built = Built(
        runner=runner,
        training=training,
        validation=validation,
        export_notes=exports.notes,
        loading_notes=exports.loading_notes,
        export_tables=exports.tables,
        export_weights=spec.export_weights,
        kind=spec.kind,
        outputs=outputs,
        callbacks=found,
        adapter=adapter,
        stores=stores,
    )
    running_batches.step()
    built.join_calls()
    if spec.model.fingerprint:
        problem = "this process built a model that differs from the one that the job was started with"
        built.fingerprint().check(Fingerprint.decode(spec.model.fingerprint), module.path, problem)
    return built


def _exports_of(spec: JobSpec, module: UserModule, runner: ModelRunner, *, needs_whole_models: bool) -> _Exports:
    if spec.export_weights:
        check_export(runner, spec.limits.export_bytes_max)
        return _Exports()
    if not overrides(runner.built.model, "call"):
        raise UserError(
            f"{module.path}: {type(runner.built.model).__name__} has no call(), so no export can predict with it",
            hint="Export its weights alone: --export_weights.",
        )
    return _Exports.of(runner, spec, needs_whole_models=needs_whole_models)


def _settings(spec: JobSpec, *, has_callbacks: bool) -> RunnerSettings:
    return RunnerSettings(
        seed=spec.plan.seed,
        eager=spec.model.eager,
        synchronous=spec.synchronous,
        has_callbacks=has_callbacks,
        swap_bytes_min=_swap_bytes_min(spec),
        replicated=spec.has_ring,
        adds_magnitudes=spec.ring_precision != "float16",
    )


def _runner(
    spec: JobSpec, module: UserModule, source: Dataset, running_batches: RunningBatches, settings: RunnerSettings
) -> ModelRunner:
    """The model, built with the first batch; an error names the record that it can't take, if there is one."""
    example: Any = first_batch(source.records, source.feeder, running_batches)
    try:
        return ModelRunner(module, example, settings)
    except UserCodeError as error:
        problem = error

    def call(model: Any, fed: Any) -> None:
        with user_code(module.path, "the model"):
            model(fed.features, training=False)

    def see(model: Any) -> UserError:
        return name_in_first_batch(problem, source.records, source.feeder, running_batches, partial(call, model))

    if may_be_about_a_record(problem):
        raise look_at(
            module,
            see,
            seed=spec.plan.seed,
            swap_bytes_min=settings.swap_bytes_min,
            replicated=settings.replicated,
        ) from problem
    raise problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exports:
    """What is known before training about the files that will be exported; the fields are those of ``Built``."""

    notes: tuple[str, ...] = ()
    loading_notes: tuple[str, ...] = ()
    tables: ExportTables = ExportTables.MODEL

    @classmethod
    def of(cls, runner: ModelRunner, spec: JobSpec, *, needs_whole_models: bool) -> _Exports:
        """Check the model for an export; errors as ``build``."""
        tables, note = choose_tables(runner, spec, needs_whole_models=needs_whole_models)
        if needs_whole_models or tables is ExportTables.MODEL:
            check_export(runner, spec.limits.export_bytes_max)
        return cls(notes=(note,) if note else (), loading_notes=tuple(loading_notes(runner)), tables=tables)


def _load(spec: JobSpec, adapts: Adapting, stores: DataStores) -> tuple[UserModule, JobAdapter | None]:
    """The model file, and what adapts its layers."""
    seed_process(spec.plan.seed)  # The model file may draw random numbers and make tables while it is imported.
    remember_tables()
    loaded: list[UserModule] = []
    adapter = None if spec.model.exported else _adapter(spec, adapts, loaded, stores)
    adapting.use(adapter or ExportedModelAdapter())
    module = load(spec.model.file, literal_params(spec.model.params))
    loaded.append(module)
    if spec.model.exported:
        module = module.with_exported(_local_copy(spec.model.exported), display(spec.model.exported))
    return module, adapter


def _adapter(spec: JobSpec, adapts: Adapting, loaded: Sequence[UserModule], stores: DataStores) -> JobAdapter:
    """Adapts layers for this process; ``loaded`` holds the model file once it is imported."""
    path = Path(spec.model.path)

    def blocks() -> Iterator[ColumnBatch]:
        custom = reader_of(loaded[0], spec.data.reader) if spec.data.reader else None
        return all_columns(spec.plan, open_reader(spec.plan, spec.data, spec.storage, stores, custom))

    if adapts is Adapting.KNOWS or not spec.kind.trains:
        missing = refuse_missing(path)
    elif adapts is Adapting.WAITS:
        missing = wait_for(spec.storage)
    else:
        columns = schema_of(spec.data).columns
        types = {column.name: column.type for column in columns}
        missing = adapt_to(path, spec.storage, types, blocks, spec.initial.adapted if spec.initial else ())
    # A job that trains nothing has no states of its own.
    known = spec.initial.adapted if spec.initial and not spec.kind.trains else spec.model.adapted
    return JobAdapter(path, known, missing)


def _check_metric(metric: str, runner: ModelRunner) -> None:
    if metric not in runner.metric_names:
        names = ", ".join(f"val_{name}" for name in runner.metric_names)
        raise UserError(
            f"{runner.module.path} has no metric val_{metric}",
            hint=f"Metrics of this model on the validation data: {names}.",
        )


def _local_copy(uri: str) -> Path:
    """An exported model on the local disk; one in object storage is copied to a temporary file."""
    if scheme_of(uri) == "file":
        return local_path(uri)
    copy = Path(tempfile.mkdtemp(prefix="elasticdl-model-")) / KERAS_FILE
    with open_store(uri).open(uri) as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)
    return copy


def _allow_waiting_steps(spec: JobSpec) -> None:
    """Have TensorFlow start a thread for every step of a round: each of them may block one while it waits for others.

    TensorFlow reads the variable when its first operation runs.
    """
    if spec.synchronous:
        threads = max(int(os.environ.get(_THREADS, "0")), len(os.sched_getaffinity(0)), spec.grads_to_wait + 2)
        os.environ[_THREADS] = str(threads)


def _data_of(
    spec: JobSpec, module: UserModule, ports: Ports | None, stores: DataStores
) -> tuple[Dataset, Dataset | None]:
    """The training data and the validation data; a job that trains nothing opens its data as both."""
    other = "predict" if spec.prediction else "evaluate"
    open_data = partial(_open, spec, module, stores, ports=ports)
    training = open_data(spec.plan, spec.data, spec.kind.value)
    if spec.validation is None:
        return training, None
    return training, open_data(spec.validation, spec.validation_data or spec.data, other)


def _swap_bytes_min(spec: JobSpec) -> int:
    """The weights of an exported model are all in its file, and a ring may have no ps."""
    return sys.maxsize if spec.model.exported or not spec.ps_pods else SWAP_BYTES_MIN


def _ports_of(spec: JobSpec, module: UserModule) -> Ports:
    """Inputs and outputs of the model, for a file without a feed."""

    def see(model: Any) -> Ports:
        metadata = schema_of(spec.data).metadata
        compiled = Compiled(model, module.path) if module.value("loss") is None and model.compiled else None
        has_labels = compiled is None or compiled.has_loss
        ports = Ports.of(model, metadata, _choice_of(spec, module), module.path, has_labels=has_labels)
        if compiled:
            ports = replace(ports, one_hot=compiled.one_hot(ports.output_names))
        is_compared = compiled is not None and module.value("eval_metrics_fn") is None
        return replace(ports, unlabelled=compiled.unlabelled(ports.output_names)) if compiled and is_compared else ports

    return look_at(module, see, seed=spec.plan.seed, swap_bytes_min=_swap_bytes_min(spec), replicated=spec.has_ring)


def _classes_of(
    spec: JobSpec, module: UserModule, ports: Ports, adapter: JobAdapter | None, adapts: Adapting
) -> ClassNames:
    """The classes of labels that are texts or booleans: of the training data, or of the model that is used."""
    file = spec.initial.file if spec.initial and not spec.initial.adapted else ""
    if adapter is None:
        model = module.exported or (module.weights and module.weights.file)
        return classes_in(model) if model else ()
    if not spec.kind.trains:
        return adapter.trained_classes or read_classes(file)
    data, choice = schema_of(spec.data).metadata, _choice_of(spec, module)
    labels = DefaultFeed(ports, data, "train", choice, module.path).text_labels
    if not any(labels):
        return ()
    trained = read_classes(file) if adapts is Adapting.ADAPTS else ()
    return adapter.learn_classes(LabelEncoder(labels, module.path, trained))


def _choice_of(spec: JobSpec, module: UserModule) -> ColumnChoice:
    constants = Constants(*map(module.value, Constants._fields))
    return ColumnChoice.of(spec.model.label, constants, module.path, spec.model.sample_weight)


def _open(
    spec: JobSpec, module: UserModule, stores: DataStores, plan: Plan, data: DataSpec, mode: str, *, ports: Ports | None
) -> Dataset:
    metadata = schema_of(data).metadata
    if ports:
        feed = DefaultFeed(ports, metadata, mode, _choice_of(spec, module), module.path, module.classes)
        module = replace(module, default_feed=feed)
    whole_batches = module.function("feed_batch") is not None
    keep = spec.prediction.keep_columns if spec.prediction and mode == "predict" else ()
    custom = reader_of(module, data.reader) if data.reader else None
    records = open_records(
        plan,
        data,
        spec.storage,
        stores,
        whole_batches=whole_batches,
        keep_columns=keep,
        custom=custom,
        expand=numbers_of(module, mode, plan.seed),
    )
    feeder = BatchFeeder(module, mode, metadata, eager=spec.model.eager)
    return Dataset(records=records, feeder=feeder)
