"""The flags of ``elasticdl evaluate`` and ``elasticdl predict``, beside those that all kinds of jobs have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from elasticdl.cli.data_flags import DATA, FORMATS, PLACES
from elasticdl.cli.options import Flag, flags_of
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.job_flags import MODEL, TRAINING, JobFlags
from elasticdl.shared.errors import UserError

OUTPUT = "Predictions"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedModelFlags(JobFlags):
    """Flags of both commands; each field is the flag of the same name."""

    model: Annotated[
        str,
        Flag(
            "The trained model: the --output folder of a training job, a .keras file, a SavedModel, or the name or id "
            "of a job, whose newest snapshots are used.",
            metavar="MODEL",
            panel=MODEL,
        ),
    ] = ""
    checkpoint_dir_for_init: Annotated[str, Flag("Alias of --model.", metavar="MODEL", panel=MODEL)] = ""

    @property
    def training_data(self) -> str:
        """There is none."""
        return ""

    @property
    def source(self) -> str:
        """The model, under whichever name of the flag it was given."""
        return self.model or self.checkpoint_dir_for_init

    def check(self) -> None:
        """Refuse values out of range and flags that contradict each other.

        Raises:
            UserError: one sentence, and what to do.
        """
        for name, flag in flags_of(type(self)).items():
            flag.check(name, getattr(self, name))
        if not self.source:
            raise UserError("--model is missing; give an exported model or the name of a job.", usage=True)
        for one, other in (("model", "checkpoint_dir_for_init"), ("storage", "checkpoint_dir")):
            if getattr(self, one) and getattr(self, other):
                raise UserError(f"--{other} and --{one} are two names of the same flag; give only one.", usage=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateFlags(TrainedModelFlags):
    """Values of the flags of ``elasticdl evaluate``."""

    validation_data: Annotated[
        str,
        Flag(
            f"Data to evaluate the model on: {PLACES} {FORMATS}",
            metavar="DATA",
            panel=DATA,
            repeated=True,
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictFlags(TrainedModelFlags):
    """Values of the flags of ``elasticdl predict``."""

    prediction_data: Annotated[
        str,
        Flag(
            f"Data to predict: {PLACES} It needs no labels. {FORMATS}",
            metavar="DATA",
            panel=DATA,
            repeated=True,
        ),
    ]
    output: Annotated[
        str, Flag("New or empty folder, or s3://bucket/prefix, for the predictions.", metavar="DIR", panel=OUTPUT)
    ]
    output_format: Annotated[
        Literal["parquet", "csv", "tfrecord"],
        Flag("Format of the predictions: parquet, csv or tfrecord.", metavar="FORMAT", panel=OUTPUT),
    ] = "parquet"
    keep_columns: Annotated[
        str,
        Flag(
            "Columns of the data to copy beside the predictions: NAME,NAME.",
            metavar="NAMES",
            panel=OUTPUT,
            repeated=True,
        ),
    ] = ""
    prediction_outputs_processor: Annotated[
        str,
        Flag(
            "Class in the model file whose process(predictions, worker_id) is called with the predictions of each "
            "minibatch. What it returns is written instead of them, unless it is None.",
            metavar="NAME",
            shows="PredictionOutputsProcessor, if the model file defines it",
            panel=OUTPUT,
        ),
    ] = ""
    minibatch_size: Annotated[
        int,
        Flag("Records per minibatch.", metavar="N", panel=TRAINING, limits=(1, 1 << 20), sets="Plan.minibatch_size"),
    ] = 256
    num_minibatches_per_task: Annotated[
        int,
        Flag(
            "Minibatches per task. The predictions of a task are one file.",
            metavar="N",
            panel=TRAINING,
            limits=(1, 1 << 20),
            sets="Plan.minibatches_per_task",
        ),
    ] = 64

    @property
    def validation_data(self) -> str:
        """There is none."""
        return ""

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are copied."""
        return names(self.keep_columns)


CommandFlags = TrainFlags | EvaluateFlags | PredictFlags
"""The flags of a command that starts a job."""


def names(text: str) -> tuple[str, ...]:
    """The names in the value of a flag: ``a, b`` -> ``("a", "b")``; each once."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
