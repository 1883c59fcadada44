"""The options of the command line: their names, help and panels, apart from what is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticdl.cli.submission.flags import LogLevel, Platform, ShuffleMode, Strategy

MODEL, DATA, TRAINING, RESOURCES, STATE, OUTPUT = (
    "Model",
    "Data",
    "Training",
    "Processes",
    "Snapshots and storage",
    "Run",
)
SWITCHES = frozenset({"--lr_staleness_modulation", "--eager", "--dry_run", "--debug", "--csv_header"})
"""Options without a value, which the old command line took as ``--switch=true``."""

Job = Annotated[str, typer.Argument(metavar="JOB", help="The job's id, or its name where only one job has it.")]

ModelDef = Annotated[
    str,
    typer.Option(
        "--model_def",
        metavar="MODEL",
        help="The model: module.symbol, path/to/file.py or path/to/file.py:symbol; looked up in the working "
        "directory, then in --model_zoo, then in the zoo that is shipped.",
        rich_help_panel=MODEL,
    ),
]
ModelZoo = Annotated[
    str, typer.Option("--model_zoo", metavar="DIR", help="A folder of model files.", rich_help_panel=MODEL)
]
ModelParams = Annotated[
    str,
    typer.Option(
        "--model_params",
        metavar="ITEMS",
        help="Keyword arguments of the model: 'name=value;name=value'.",
        rich_help_panel=MODEL,
    ),
]
Eager = Annotated[
    bool, typer.Option("--eager", help="Run the step uncompiled, to debug the model's code.", rich_help_panel=MODEL)
]

TrainingData = Annotated[
    str,
    typer.Option(
        "--training_data",
        metavar="DATA",
        help="CSV, TFRecord or Parquet: a file, a folder or a glob; local or s3://bucket/prefix.",
        rich_help_panel=DATA,
    ),
]
ValidationData = Annotated[
    str,
    typer.Option(
        "--validation_data",
        metavar="DATA",
        help="The same, for evaluation during and after training.",
        rich_help_panel=DATA,
    ),
]
CsvHeader = Annotated[
    bool,
    typer.Option(
        "--csv_header/--no_csv_header",
        help="Whether the first line of each CSV file names its columns.",
        rich_help_panel=DATA,
    ),
]
CsvDelimiter = Annotated[
    str, typer.Option("--csv_delimiter", metavar="CHAR", help="What separates CSV columns.", rich_help_panel=DATA)
]
ShuffleOption = Annotated[
    ShuffleMode,
    typer.Option(
        "--shuffle",
        metavar="MODE",
        help="What the seed reorders: none, tasks, or also the records of each task (records).",
        rich_help_panel=DATA,
    ),
]

MinibatchSize = Annotated[
    int, typer.Option("--minibatch_size", metavar="N", help="Records per minibatch.", rich_help_panel=TRAINING)
]
MinibatchesPerTask = Annotated[
    int,
    typer.Option("--num_minibatches_per_task", metavar="N", help="Minibatches per task.", rich_help_panel=TRAINING),
]
Epochs = Annotated[
    int, typer.Option("--num_epochs", metavar="N", help="Passes over the data.", rich_help_panel=TRAINING)
]
MaxStep = Annotated[
    int,
    typer.Option(
        "--max_step", metavar="N", help="End after so many minibatches (0: no limit).", rich_help_panel=TRAINING
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Of shuffling and initial weights; chosen and recorded when not given.",
        rich_help_panel=TRAINING,
        show_default="random",
    ),
]
EvaluationSteps = Annotated[
    int,
    typer.Option(
        "--evaluation_steps",
        metavar="N",
        help="Evaluate every so many steps (0: after each epoch).",
        rich_help_panel=TRAINING,
    ),
]
EvaluationThrottle = Annotated[
    float,
    typer.Option(
        "--evaluation_throttle_secs",
        metavar="S",
        help="Evaluate every so many seconds, and never sooner after the last time (0: not by the clock).",
        rich_help_panel=TRAINING,
    ),
]
GradsToWait = Annotated[
    int,
    typer.Option(
        "--grads_to_wait",
        metavar="N",
        help="Minibatches averaged into one update of the model.",
        rich_help_panel=TRAINING,
    ),
]
StalenessModulation = Annotated[
    bool,
    typer.Option(
        "--lr_staleness_modulation",
        help="Divide a gradient's learning rate by its age in updates.",
        rich_help_panel=TRAINING,
    ),
]

Workers = Annotated[
    int,
    typer.Option("--num_workers", metavar="N", help="Worker processes.", rich_help_panel=RESOURCES),
]
PsPods = Annotated[
    int,
    typer.Option("--num_ps_pods", metavar="N", help="Parameter server processes.", rich_help_panel=RESOURCES),
]
StrategyOption = Annotated[
    Strategy,
    typer.Option(
        "--distribution_strategy",
        metavar="NAME",
        help="How workers share what they learn: ParameterServerStrategy; AllreduceStrategy is not available yet.",
        rich_help_panel=RESOURCES,
    ),
]
PlatformOption = Annotated[
    Platform,
    typer.Option(
        "--platform",
        metavar="NAME",
        help="Where the job runs: local; kubernetes is not available yet.",
        rich_help_panel=RESOURCES,
    ),
]
Envs = Annotated[
    str,
    typer.Option(
        "--envs",
        metavar="ITEMS",
        help="Environment of workers and ps: NAME=value,NAME=value.",
        rich_help_panel=RESOURCES,
    ),
]

CheckpointSteps = Annotated[
    int,
    typer.Option(
        "--checkpoint_steps",
        metavar="N",
        help="Snapshots every so many steps, besides those every 30 s (0: none).",
        rich_help_panel=STATE,
    ),
]
CheckpointDir = Annotated[
    str, typer.Option("--checkpoint_dir", metavar="DIR", help="The old name of --storage.", rich_help_panel=STATE)
]
Storage = Annotated[
    str,
    typer.Option(
        "--storage",
        metavar="DIR",
        help="Folder or s3://bucket/prefix for snapshots.",
        rich_help_panel=STATE,
        show_default="in the run directory",
    ),
]
NatsUrl = Annotated[
    str,
    typer.Option(
        "--nats_url",
        metavar="URL",
        help="A NATS server with JetStream to use.",
        rich_help_panel=STATE,
        show_default="one is started for the job",
    ),
]
RunDir = Annotated[
    Path | None,
    typer.Option(
        "--run_dir",
        metavar="DIR",
        help="Folder of the folders of all jobs: logs, snapshots, event log.",
        rich_help_panel=STATE,
        show_default="$ELASTICDL_RUN_DIR or ~/.local/state/elasticdl/jobs",
    ),
]

Output = Annotated[
    str,
    typer.Option(
        "--output",
        metavar="DIR",
        help="Folder for the trained model (saved_model and model.keras); without it nothing is exported.",
        rich_help_panel=OUTPUT,
    ),
]
JobName = Annotated[
    str,
    typer.Option(
        "--job_name",
        metavar="NAME",
        help="Beginning of the job's id.",
        rich_help_panel=OUTPUT,
        show_default="the model file's name",
    ),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write the closing report there, as JSON.", rich_help_panel=OUTPUT),
]
LogLevelOption = Annotated[
    LogLevel,
    typer.Option(
        "--log_level",
        metavar="LEVEL",
        help="How much services write into their logs: DEBUG, INFO, WARNING, ERROR.",
        rich_help_panel=OUTPUT,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry_run", help="Check model file, data and places, print the plan and start nothing.", rich_help_panel=OUTPUT
    ),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.", rich_help_panel=OUTPUT)]
