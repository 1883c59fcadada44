"""The options that all kinds of jobs have: the model file, how data is read, processes and storage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from elasticdl.shared.job.model_file import NAMED_FUNCTIONS
from elasticdl.shared.job.options import Flag, Seconds, values_for
from elasticdl.shared.job.spec import COLUMN_TYPES, FIRST_BATCH_FACTOR, Limits

DATA = "Data"
"""Heading of these flags in the help of a command."""
PLACES = (
    "a file, a folder or a glob, local or s3://bucket/prefix. Several are separated by commas, or given by repeating "
    "the flag."
)
"""What these flags take."""
FORMATS = (
    "Formats: CSV, JSON lines, TFRecord, RecordIO, Parquet, NumPy (.npy, .npz), IDX, and images in folders or texts in "
    "folders, which are their classes."
)
"""The titles of all formats, whose modules import pyarrow: help texts do not wait for it."""
PATH_FLAGS = ("training_data", "validation_data", "prediction_data")
"""Flags that say where data is, as the fields of jobs' flags are named."""
CLIENT_FLAGS = ("debug", "detach", "dry_run", "nats_url", "platform", "report", "run_dir")
"""Flags of the client alone: a job on a cluster does not have them."""

Columns = Annotated[
    str,
    Flag(
        "Columns to read, in this order: NAME,NAME. Other columns are ignored.",
        metavar="NAMES",
        shows="all",
        panel=DATA,
        repeated=True,
    ),
]
ColumnTypes = Annotated[
    str,
    Flag(
        f"Types of columns: NAME=TYPE,NAME=TYPE. TYPE is {', '.join(COLUMN_TYPES)}.",
        metavar="ITEMS",
        shows="inferred, shown at the start",
        panel=DATA,
        repeated=True,
    ),
]
FillMissing = Annotated[
    str,
    Flag(
        "Values to use where a column has none: NAME=VALUE,NAME=VALUE. Needed for integers; without it missing "
        "floats are NaN and missing strings empty.",
        metavar="ITEMS",
        panel=DATA,
        repeated=True,
    ),
]
CsvHeader = Annotated[
    bool,
    Flag(
        "Whether the first line of each CSV file holds the column names.",
        off="no_csv_header",
        panel=DATA,
        sets="ReaderOptions.csv_header",
    ),
]
CsvDelimiter = Annotated[
    str,
    Flag(
        "Character between CSV columns.",
        metavar="CHAR",
        shows="comma, in .tsv files tab",
        panel=DATA,
        sets="ReaderOptions.csv_delimiter",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFlags:
    """Values of the flags; each field is the flag of the same name."""

    columns: Columns = ""
    column_types: ColumnTypes = ""
    fill_missing: FillMissing = ""
    csv_header: CsvHeader = True
    csv_delimiter: CsvDelimiter = ""


MODEL, TRAINING, PROCESSES, STORAGE, RUN = (
    "Model",
    "Training",
    "Processes",
    "Snapshots and storage",
    "Run",
)
WORKERS_MAX = 1024
PS_MAX = 256
"""A model has as many partitions: ``elasticdl.shared.model.placement.PARTITIONS``."""
MINIBATCH_SIZE = 64
BATCH_DEADLINE = Seconds(600)


RunDir = Annotated[
    Path | None,
    Flag(
        "Folder that holds one folder per job: event log, process logs, snapshots.",
        metavar="DIR",
        shows="$ELASTICDL_RUN_DIR or ~/.local/state/elasticdl/jobs",
        panel="Snapshots and storage",
    ),
]
ReportFile = Annotated[
    Path | None, Flag("Also write the final report to this file, as JSON.", metavar="FILE", panel="Run")
]
Detach = Annotated[
    bool,
    Flag(
        "Return as soon as the job has been accepted. It continues in the background; see elasticdl attach.",
        letter="d",
        panel="Run",
    ),
]
Debug = Annotated[bool, Flag("Show Python tracebacks of errors.", panel="Run")]


def _function(name: str, does: str) -> Flag:
    """A flag that names a function of the model file."""
    return Flag(f"Function of the model file that {does}.", metavar="NAME", shows=name, panel=MODEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFlags:
    """Values of the flags; each field is the flag of the same name."""

    model_def: Annotated[
        str,
        Flag(
            "The model: module.symbol, path/to/file.py or path/to/file.py:symbol. Searched for in the working "
            "directory, in --model_zoo and in the model zoo of this package.",
            metavar="MODEL",
            panel=MODEL,
        ),
    ]
    model_zoo: Annotated[str, Flag("Folder with model files.", metavar="DIR", panel=MODEL)] = ""
    model_params: Annotated[
        str, Flag("Keyword arguments of the model: 'name=value;name=value'.", metavar="ITEMS", panel=MODEL)
    ] = ""
    eager: Annotated[
        bool,
        Flag("Run training steps without compiling them, to debug the model.", panel=MODEL, sets="ModelSpec.eager"),
    ] = False
    label: Annotated[
        str,
        Flag(
            "Column of the label, for a model file without a feed, whose inputs are the columns of their names. "
            "For several outputs: COLUMN,COLUMN. Takes precedence over label in the file.",
            metavar="COLUMN",
            panel=MODEL,
            shows="the only column that is no input",
            sets="ModelSpec.label",
        ),
    ] = ""
    sample_weight: Annotated[
        str,
        Flag(
            "Column with the sample weight of each record, for a model file without a feed. For several outputs: "
            "COLUMN for all, or COLUMN,COLUMN. Takes precedence over sample_weight in the file.",
            metavar="COLUMN",
            panel=MODEL,
            shows="none",
            sets="ModelSpec.sample_weight",
        ),
    ] = ""
    feed: Annotated[str, _function("feed", "turns the records of a minibatch into tensors")] = ""
    feed_batch: Annotated[str, _function("feed_batch", "turns a minibatch as a whole into tensors")] = ""
    loss: Annotated[str, _function("loss", "computes the loss")] = ""
    optimizer: Annotated[str, _function("optimizer", "returns the optimizer")] = ""
    eval_metrics_fn: Annotated[str, _function("eval_metrics_fn", "returns the metrics")] = ""
    custom_data_reader: Annotated[
        str,
        Flag(
            "Function in the model file that returns a reader for the data, which is called with --training_data, "
            "--validation_data or --prediction_data.",
            metavar="NAME",
            shows="custom_data_reader, if the model file defines it",
            panel=DATA,
        ),
    ] = ""
    data_reader_params: Annotated[
        str,
        Flag("Keyword arguments of the custom data reader: 'name=value;name=value'.", metavar="ITEMS", panel=DATA),
    ] = ""
    columns: Columns = ""
    column_types: ColumnTypes = ""
    fill_missing: FillMissing = ""
    csv_header: CsvHeader = True
    csv_delimiter: CsvDelimiter = ""
    prefetch_batches: Annotated[
        int,
        Flag(
            "Minibatches that a worker reads ahead of the one that it trains. A higher number hides slow storage and "
            "takes more memory. Of minibatches that take less than 16 ms, a worker reads up to three more. The number "
            "does not change the model.",
            metavar="N",
            panel=DATA,
            limits=(1, 1024),
            sets="JobSpec.prefetch_batches",
        ),
    ] = 2
    data_cache_dir: Annotated[
        str,
        Flag(
            "Folder on each worker's machine that keeps data which was read from object storage. Workers and jobs on "
            "one machine share it.",
            metavar="DIR",
            shows="elasticdl/data in $XDG_CACHE_HOME or ~/.cache",
            panel=DATA,
        ),
    ] = ""
    data_cache_size: Annotated[
        str,
        Flag("Maximum size of that folder, such as 500Mi or 2Ti; 0 keeps nothing on disk.", metavar="SIZE", panel=DATA),
    ] = "10Gi"
    minibatch_size: Annotated[
        int,
        Flag("Records per minibatch.", metavar="N", panel=TRAINING, limits=(1, 1 << 20), sets="Plan.minibatch_size"),
    ] = MINIBATCH_SIZE
    num_minibatches_per_task: Annotated[
        int,
        Flag(
            "Minibatches per task. The master dispatches whole tasks to workers.",
            metavar="N",
            panel=TRAINING,
            limits=(1, 1 << 20),
            sets="Plan.minibatches_per_task",
        ),
    ] = 8
    num_workers: Annotated[
        int,
        Flag("Worker processes.", metavar="N", panel=PROCESSES, limits=(1, WORKERS_MAX), sets="JobSpec.workers"),
    ] = 2
    num_ps_pods: Annotated[
        int | None,
        Flag(
            "Parameter server processes. With AllreduceStrategy they have the tables of the model.",
            metavar="N",
            shows="1, or none with AllreduceStrategy",
            panel=PROCESSES,
            limits=(1, PS_MAX),
        ),
    ] = None
    batch_deadline_secs: Annotated[
        Seconds,
        Flag(
            "Seconds that a minibatch may take in the code of the model file, or to be read or computed, before its "
            "worker is replaced (0: any time). The first minibatch that a process trains, evaluates or predicts may "
            f"take {FIRST_BATCH_FACTOR:g} times as long, because TensorFlow compiles the model. Waiting for other "
            "processes does not count. Hooks of callbacks, metrics and the export count as a minibatch each.",
            metavar="S",
            panel=PROCESSES,
            limits=(0, 1 << 31),
            sets="Limits.batch_deadline_s",
        ),
    ] = BATCH_DEADLINE
    platform: Annotated[
        Literal["local", "kubernetes"],
        Flag("Where to run the job: on this machine (local), or on kubernetes.", metavar="NAME", panel=PROCESSES),
    ] = "local"
    envs: Annotated[
        str,
        Flag(
            "Environment variables of workers and parameter servers: NAME=value,NAME=value.",
            metavar="ITEMS",
            panel=PROCESSES,
            is_secret=True,
        ),
    ] = ""
    checkpoint_dir: Annotated[str, Flag("Alias of --storage.", metavar="DIR", panel=STORAGE)] = ""
    storage: Annotated[
        str,
        Flag("Folder or s3://bucket/prefix for snapshots.", metavar="DIR", shows="in the run directory", panel=STORAGE),
    ] = ""
    nats_url: Annotated[
        str,
        Flag(
            "URL of an existing NATS server with JetStream.",
            metavar="URL",
            shows="start one for this job",
            panel=STORAGE,
            is_secret=True,
        ),
    ] = ""
    run_dir: RunDir = None
    job_name: Annotated[
        str, Flag("First part of the job's id.", metavar="NAME", shows="name of the model file", panel=RUN)
    ] = ""
    report: ReportFile = None
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Flag(
            "Minimum level of the messages in process logs: DEBUG, INFO, WARNING or ERROR.",
            metavar="LEVEL",
            panel=RUN,
            sets="JobSpec.log_level",
        ),
    ] = "INFO"
    detach: Detach = False
    debug: Debug = False

    @property
    def processes(self) -> int:
        """Processes of workers and parameter servers."""
        return self.num_workers + self.ps_pods

    @property
    def ps_pods(self) -> int:
        """Processes of parameter servers."""
        return self.num_ps_pods or 1

    @property
    def ps(self) -> int:
        """``JobSpec.ps``."""
        return self.ps_pods

    @property
    def job_values(self) -> dict[str, Any]:
        """The fields of the ``JobSpec`` that flags set."""
        return {"limits": Limits(**values_for("Limits", self)), **values_for("JobSpec", self), "ps": self.ps}

    @property
    def functions(self) -> dict[str, str]:
        """Function of the model-file contract -> the function of the file that the user names in its place."""
        return {name: value for name in NAMED_FUNCTIONS if (value := getattr(self, name))}
