"""The specification of a job, which every service reads from the first record of the event log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import JobId, Purpose
from elasticdl.shared.proto.fields import Uint64
from elasticdl.shared.storage.uris import display

DATA_CACHE_BYTES = 10 << 30
"""Default budget on each worker's disk for data that was read from object storage, bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """The user's model and how to run it.

    Attributes:
        symbol: the function or class in it that returns the model.
        params: ``--model_params``, passed to it as keyword arguments; Python literals as text.
        digest: SHA-256 of the model file and of the modules beside it, as they were when the job was planned.
        eager: run the step uncompiled.
        fingerprint: of the model as it was made before the job started, to which every process compares its own; empty:
            nothing is compared. See ``elasticdl.worker.model.fingerprint``.
        exported: URI of a ``.keras`` file, which is loaded in place of calling ``symbol``; empty: none.
        callbacks: the function in it that returns the callbacks, if it has one; empty: ``callbacks``.
        label: columns of the labels, with commas between, if the file has no feed; empty: they are found.
        sample_weight: columns of the sample weights, likewise; empty: those that the file names, if it does.
        adapted: URIs of the states of layers that were adapted to the training data before the job started. See
            ``elasticdl.worker.model.adapted``.
        functions: function of the model-file contract -> name of the function of the file that takes its place.
    """

    path: str
    symbol: str
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    digest: str = ""
    eager: bool = False
    fingerprint: bytes = b""
    exported: str = ""
    callbacks: str = ""
    label: str = ""
    adapted: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    sample_weight: str = ""

    @property
    def file(self) -> ModelFile:
        """The model file."""
        return ModelFile(path=Path(self.path), symbol=self.symbol, functions=self.functions)


COLUMN_TYPES = (
    "string",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
)
"""Types that a column can be given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSpec:
    """A reader that the model file defines, in place of those for files; see ``elasticdl.shared.data.custom``.

    Attributes:
        function: the function in the model file that returns it.
        origin: what the user gave as data; only the reader knows what it means.
        params: ``--data_reader_params``, passed to the function as keyword arguments; Python literals as text.
        records_per_task: records of a full task, the most that one call of ``read_records`` is asked for.
    """

    function: str
    origin: str
    params: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    records_per_task: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpec:
    """How the records of the plan's sources are read.

    Attributes:
        format: name of a data format, ``csv`` for instance.
        column_names: the columns that are read, in their order; empty for TFRecord.
        column_types: ``int64``, ``float64``, ``string``... one per column, fixed when the job was planned.
        csv_header: whether the first line of each CSV file names the columns.
        file_columns: CSV: all columns of the files in their order; empty: those that are read.
        fill_missing: column -> text of the value that replaces missing ones.
        reader: of the model file, which reads the records; its format is ``json`` if they are dicts, ``tfrecord`` if
            they are bytes. None: the sources are files.
        class_names: of files in folders, in the order of their labels.
    """

    format: str
    column_names: tuple[str, ...] = ()
    column_types: tuple[str, ...] = ()
    csv_header: bool = True
    csv_delimiter: str = ","
    file_columns: tuple[str, ...] = ()
    fill_missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    reader: ReaderSpec | None = None
    class_names: tuple[str, ...] = ()


LEASE_S = 10.0
"""Default of the seconds after which a task is delivered again unless its lease is renewed."""
FIRST_BATCH_FACTOR = 3.0
"""The first batch that a process trains, evaluates or predicts may take this many times the deadline: TensorFlow traces
and compiles the model for it."""
_START_PART = 0.8
"""Part of ``start_s`` that one part of a worker's start may take."""
_LEASE_DEADLINE_S_MIN = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a job.

    Attributes:
        attempts_max: failures of one task in the user's code before the job fails.
        crashes_per_batch_max: workers that may crash while running the same batch before the job fails.
        relaunches_max: failures of one pod in a row by its own fault and without progress before the job fails.
        lease_s: seconds after which a task is delivered again unless its lease is renewed.
        start_s: seconds that a process may take to get ready before it is restarted.
        batch_deadline_s: seconds that one batch may take in the code of the model file before its worker is replaced;
            0: any time.
        window_s: seconds of work that the master keeps dispatched.
        export_bytes_max: largest model that is exported in one piece.
        stored_states_max: neighbouring tasks of an evaluation whose stored metric states a worker replaces by their
            sum.
        evaluation_window_min: least number of tasks of an evaluation or a prediction job that are kept dispatched, for
            up to eight workers; each further worker adds an eighth of it.
        evaluations_max: the latest evaluations that the master remembers; of earlier ones it only keeps what it needs.
    """

    attempts_max: int = 3
    crashes_per_batch_max: int = 2
    relaunches_max: int = 5
    lease_s: float = LEASE_S
    batch_deadline_s: float = 600.0
    window_s: float = 120.0
    export_bytes_max: int = 2 << 30
    start_s: float = 300.0
    stored_states_max: int = 64
    evaluation_window_min: int = 64
    evaluations_max: int = 64

    @property
    def start_part_s(self) -> float:
        """Seconds for a part of a worker's start: less than ``start_s``, so that it can say where it hangs."""
        return _START_PART * self.start_s if self.batch_deadline_s else math.inf

    @property
    def lease_deadline_s(self) -> float:
        """Seconds without any progress after which a worker loses its tasks, whatever it waits for."""
        return max(self.batch_deadline_s, _LEASE_DEADLINE_S_MIN) if self.batch_deadline_s else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class BestModel:
    """What the best model is, and what follows from it.

    Attributes:
        metric: name of the metric on the validation data, ``loss`` for instance.
        is_max: whether a greater value is better.
        min_delta: a value is better only if it differs from the best one by more than this.
        save: keep the best evaluated version, and export it instead of the last one.
        patience: end training after this many epochs in a row without a better value; 0: never.
        from_epoch: evaluations of earlier epochs, counted from 0, do not count.
    """

    metric: str
    is_max: bool = False
    min_delta: float = 0.0
    save: bool = False
    patience: int = 0
    from_epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPart:
    """A part of a model that one snapshot holds.

    Attributes:
        manifest: URI of the snapshot's manifest.
        partitions: which partitions of the model to take from it, as ranges.
    """

    manifest: str
    partitions: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialModel:
    """A trained model, from whose weights a new model starts: a version of another job's model, or a file.

    Attributes:
        job: the other job; empty: it is a file.
        step: batches that the other job had trained.
        parts: snapshots that together hold all partitions of that model. The model check writes that of a file.
        is_whole: every variable of the new model has to be in that model, as for an evaluation.
        file: URI of a ``.keras`` file or of the folder of a SavedModel; empty: it is another job's.
        note: what the new model takes from a file and what it does not, for people.
        adapted: URIs of the states of layers that the other job has adapted, see ``ModelSpec``.
        has_optimizer: the state of the other job's optimizer and its number of updates are taken, too.
    """

    job: JobId
    step: int = 0
    parts: tuple[SnapshotPart, ...] = ()
    is_whole: bool = False
    file: str = ""
    note: str = ""
    adapted: tuple[str, ...] = ()
    has_optimizer: bool = False

    @property
    def source(self) -> str:
        """Names the model in a sentence: ``job first-3f2a``, or the path of a file."""
        return f"job {self.job}" if self.job else display(self.file)

    @property
    def text(self) -> str:
        """The source and, of a job, its step."""
        return f"{self.source} at step {self.step:,}" if self.job else self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionSpec:
    """What a prediction job writes into ``JobSpec.output``.

    Attributes:
        keep_columns: columns of the data that are copied beside the predictions.
        processor: name of the class in the model file whose ``process()`` is called with each batch of predictions, if
            the model file defines it.
    """

    format: str = "parquet"
    keep_columns: tuple[str, ...] = ()
    processor: str = ""


class Strategy(Enum):
    """How the workers of a job exchange gradients; see ``docs/strategies.md``."""

    PARAMETER_SERVERS = "ParameterServerStrategy"
    ALLREDUCE = "AllreduceStrategy"
    """Each worker holds a replica of the model, and a ring of workers adds up the gradients. The first worker of the
    ring serves its replica as ``ps-0``. Tables of the model, if it has any, are on the ps from ``ps-1`` on."""


class ExportTables(Enum):
    """Where the tables of the exported model are that the ps serve."""

    AUTO = "auto"
    """``PARQUET`` if the model is above ``Limits.export_bytes_max`` or a table has no ``input_dim``, else ``MODEL``."""
    MODEL = "model"
    """In the files of the model, like all other weights."""
    PARQUET = "parquet"
    """In Parquet files of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """Everything that the services of a job have to agree on.

    Attributes:
        kind: what the job does.
        created_s: when it was submitted, seconds since 1970.
        checksum: sum of the plan's record hashes over all epochs according to the index, modulo 2**64; of an
            evaluation or prediction, that of the validation data.
        epoch_checksum: the same over one whole epoch.
        data: how their records are read.
        validation: the validation data's plan (one epoch, no shuffle), if there is any; the data to predict.
        validation_data: how its records are read.
        output: URI of the folder for the exported model, or for the predictions; empty: no export.
        export_tables: where the tables of the exported model are; the model check resolves ``AUTO``.
        export_weights: export the weights alone, as one file, instead of the model.
        storage: URI of the folder for snapshots and indices.
        workers: number of workers.
        ps: number of parameter servers, counting the first worker of a ring, which is one besides.
        strategy: how workers exchange gradients.
        deterministic: a ring adds gradients up in float64.
        ring_precision: type in which a ring sends sums: ``bfloat16`` or ``float16``; None: ``float32``.
        spare_workers: workers beyond the wanted ones that wait to take the place of one that has died.
        replica_check_steps: updates after which the replicas of a ring are compared (0: never).
        snapshot_interval_s: seconds between a ps' snapshots.
        snapshot_steps: additional snapshots every N steps (0: none).
        evaluate_epochs: evaluate the model at the end of each epoch; the next one begins once this state is pinned.
        evaluation_steps: evaluate every N steps (0: disabled).
        evaluation_interval_s: evaluate every N seconds (0: disabled); also the least time between two evaluations,
            except those at the end of an epoch.
        grads_to_wait: batches whose gradients are averaged into one update.
        synchronous: the plan decides which batches these are, and none is computed before the update before is made.
        max_staleness: asynchronous training: optimizer updates that a ps may make between a batch's pull and its
            absorption; None: any number.
        staleness_by_workers: asynchronous training without ``max_staleness``: at most one update less than the workers
            that train at the moment.
        prefetch_batches: batches that a worker reads and feeds ahead of the one that it computes, at least 1.
        data_cache_dir: folder on each worker's machine that keeps what was read from object storage; empty:
            ``elasticdl/data`` in the user's cache folder.
        data_cache_bytes: budget of that folder; 0: nothing is kept on disk.
        staleness_scaled_rate: divide the rate of a push by the number of updates since its pull.
        learning_rate_scale: factor of the optimizer's learning rate in every update.
        envs: environment variables for worker and ps processes.
        best: how evaluated versions of the model are compared; None: they are not.
        initial: whose weights the model starts from; None: from those that the model file gives it.
        prediction: what a prediction job writes; None: the job is of another kind.
        metrics_best: the best possible metrics on the validation data, if the data set states them.
        callbacks: class names of the model file's callbacks in their order; the next epoch waits for them.
        tensorboard_log_dir: URI of the folder for TensorBoard's event files; empty: the master writes none.
        log_level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        limits: numbers that bound the job.
    """

    job: JobId
    created_s: float
    plan: Plan
    checksum: Uint64
    data: DataSpec
    validation: Plan | None = None
    validation_data: DataSpec | None = None
    model: ModelSpec
    output: str = ""
    storage: str
    workers: int = 2
    ps: int = 1
    snapshot_interval_s: float = 30.0
    snapshot_steps: int = 0
    evaluation_steps: int = 0
    evaluation_interval_s: float = 0.0
    grads_to_wait: int = 1
    staleness_scaled_rate: bool = False
    envs: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    log_level: str = "INFO"
    limits: Limits = field(default_factory=Limits)
    evaluate_epochs: bool = False
    best: BestModel | None = None
    epoch_checksum: Uint64 = 0
    max_staleness: int | None = None
    learning_rate_scale: float = 1.0
    prefetch_batches: int = 2
    staleness_by_workers: bool = False
    kind: JobKind = JobKind.TRAIN
    metrics_best: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    initial: InitialModel | None = None
    synchronous: bool = False
    callbacks: tuple[str, ...] = ()
    tensorboard_log_dir: str = ""
    prediction: PredictionSpec | None = None
    export_tables: ExportTables = ExportTables.AUTO
    data_cache_dir: str = ""
    data_cache_bytes: int = DATA_CACHE_BYTES
    export_weights: bool = False
    strategy: Strategy = Strategy.PARAMETER_SERVERS
    deterministic: bool = False
    replica_check_steps: int = 100
    spare_workers: int = 0
    ring_precision: str | None = None

    @property
    def has_ring(self) -> bool:
        """Whether the workers form a ring, and one of them serves the dense variables as ``ps-0``."""
        return self.strategy is Strategy.ALLREDUCE

    @property
    def ps_pods(self) -> int:
        """Processes of ps. With a ring they have the tables alone."""
        return self.ps - 1 if self.has_ring else self.ps

    @property
    def has_tables_beside_ring(self) -> bool:
        """Whether workers have the dense variables, and ps the tables: each batch is in the ledgers of both."""
        return self.has_ring and self.ps > 1

    @property
    def processes(self) -> int:
        """Processes of workers and ps."""
        return self.workers + self.ps_pods

    @property
    def work(self) -> Plan:
        """The plan of what the job is there for: its training, or the data that it evaluates or predicts."""
        return self.plan if self.kind.trains or self.validation is None else self.validation

    @property
    def rounds(self) -> Rounds | None:
        """Synchronous training: which batches make one update; None: asynchronous."""
        return Rounds(plan=self.plan, tasks_per_cohort=self.grads_to_wait) if self.synchronous else None

    @property
    def bounds_staleness(self) -> bool:
        """Whether a ps delays pulls to bound the staleness."""
        return self.max_staleness is not None or self.staleness_by_workers

    def has_task(self, task: TaskRef) -> bool:
        """Whether the job has a task of this number, with the epochs that a resume may add."""
        match task.purpose:
            case Purpose.TRAIN:
                return self.plan.defines(task.number)
            case Purpose.EVALUATE:
                return self.validation is not None and task.number >= 0
            case Purpose.PREDICT:
                return self.validation is not None and self.validation.defines(task.number)
            case Purpose.MERGE | Purpose.EXPORT:
                return task.number >= 0

    def with_epochs(self, epochs: int) -> JobSpec:
        """The job with another number of whole epochs. Tasks that both have are the same ones."""
        checksum = epochs * self.epoch_checksum & ((1 << 64) - 1)
        return replace(self, plan=replace(self.plan, epochs=epochs), checksum=checksum)
