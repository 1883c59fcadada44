"""The options of each kind of job: of ``elasticdl train``, ``elasticdl evaluate`` and ``elasticdl predict``.

A new option is one field of a class here, or of ``JobFlags`` if all kinds of jobs have it. ``Flag.sets`` names the
field of the job's specification that takes its value; an option that needs more than that is read where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from elasticdl.shared.errors import UserError, check_range
from elasticdl.shared.job.job_options import (
    DATA,
    FORMATS,
    MINIBATCH_SIZE,
    MODEL,
    PLACES,
    PROCESSES,
    RUN,
    STORAGE,
    TRAINING,
    JobFlags,
)
from elasticdl.shared.job.kinds import JobKind
from elasticdl.shared.job.options import UNLIMITED, Flag, Seconds, flags_of, plain_values
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.job.spec import BestModel, ExportTables, Strategy
from elasticdl.shared.words import listed

OUTPUT = "Predictions"
_GREATEST_IS_BEST = ("acc", "auc", "precision", "recall", "f1", "r2")
"""Parts of the names of metrics of which the greatest value is the best."""
_COUNT_MAX = 1 << 62
SPARES_MAX = 64
_STALENESS_MAX = 1024
_UNBOUNDED = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFlags(JobFlags):
    """Values of the flags; each field is the flag of the same name."""

    kind: ClassVar[JobKind] = JobKind.TRAIN

    training_data: Annotated[
        str,
        Flag(
            f"Training data: {PLACES} {FORMATS}",
            metavar="DATA",
            panel=DATA,
            repeated=True,
        ),
    ]
    validation_data: Annotated[
        str,
        Flag("Validation data in the same format, for evaluation.", metavar="DATA", panel=DATA, repeated=True),
    ] = ""
    shuffle: Annotated[
        Shuffle | None,
        Flag(
            "What to shuffle in each epoch: none, tasks (their order only), records (tasks, and records within each "
            "task), or global (blocks of records over the whole data set, and records within each task).",
            metavar="MODE",
            shows="global; records for more than 256 MiB, compressed files and custom readers",
            panel=DATA,
            sets="Plan.shuffle",
        ),
    ] = None
    num_epochs: Annotated[
        int,
        Flag("Passes over the training data.", metavar="N", panel=TRAINING, limits=(1, 1 << 31), sets="Plan.epochs"),
    ] = 1
    max_step: Annotated[
        int,
        Flag(
            "Stop after this many minibatches (0: no limit).",
            metavar="N",
            panel=TRAINING,
            limits=(0, _COUNT_MAX),
            sets="Plan.max_step",
        ),
    ] = 0
    initial_model: Annotated[
        str,
        Flag(
            "Start from trained weights, matched by variable name and shape: the --output folder of a training job, a "
            ".keras file, a SavedModel, or the name or id of a job, whose newest snapshots are used. The optimizer "
            "starts from scratch, unless --initial_optimizer is given.",
            metavar="MODEL",
            shows="the weights that the model file sets",
            panel=TRAINING,
        ),
    ] = ""
    initial_optimizer: Annotated[
        bool, Flag("With --initial_model=JOB: continue its optimizer's state and number of updates.", panel=TRAINING)
    ] = False
    seed: Annotated[
        int | None,
        Flag(
            "Seed for shuffling and initial weights.",
            metavar="N",
            shows="random, shown at the start",
            panel=TRAINING,
            limits=(0, (1 << 63) - 1),
            sets="Plan.seed",
        ),
    ] = None
    evaluate_every: Annotated[
        Literal["epoch", "end"] | None,
        Flag(
            "When to evaluate on the validation data: epoch (the model at the end of each epoch), or end (only the "
            "finished model).",
            metavar="WHEN",
            shows="epoch, unless --evaluation_steps or --evaluation_throttle_secs is given",
            panel=TRAINING,
        ),
    ] = None
    evaluation_steps: Annotated[
        int,
        Flag(
            "Also evaluate every N steps (0 disables).",
            metavar="N",
            panel=TRAINING,
            limits=(0, _COUNT_MAX),
            sets="JobSpec.evaluation_steps",
        ),
    ] = 0
    evaluation_throttle_secs: Annotated[
        Seconds,
        Flag(
            "Also evaluate every S seconds (0 disables), and wait at least S seconds between two evaluations, except "
            "those at the end of an epoch.",
            metavar="S",
            panel=TRAINING,
            limits=(0, 1 << 31),
            sets="JobSpec.evaluation_interval_s",
        ),
    ] = UNLIMITED
    use_async: Annotated[
        Literal["true", "false"],
        Flag(
            "Workers update the model independently of each other. With --use_async=false every update is the mean of "
            "--grads_to_wait minibatches that were computed from the same weights: the model does not depend on the "
            "number of workers or on their failures.",
            panel=TRAINING,
        ),
    ] = "true"
    save_best: Annotated[
        str,
        Flag(
            "Keep and export the model with the best value of this metric on the validation data, such as val_loss or "
            "val_accuracy. Without it the last model is exported.",
            metavar="METRIC",
            panel=TRAINING,
        ),
    ] = ""
    save_best_mode: Annotated[
        Literal["auto", "min", "max"],
        Flag(
            "Whether the smallest (min) or the largest (max) value of the metric is the best. auto: max if its name "
            "contains acc, auc, precision, recall, f1 or r2, else min.",
            metavar="MODE",
            panel=TRAINING,
        ),
    ] = "auto"
    min_delta: Annotated[
        float,
        Flag(
            "Smallest change of the metric that counts as an improvement.",
            metavar="X",
            panel=TRAINING,
            limits=(0, 1e300),
        ),
    ] = 0.0
    early_stopping_patience: Annotated[
        int,
        Flag(
            "Stop training after N epochs in a row without an improvement of --save_best's metric, or of val_loss "
            "(0: never).",
            metavar="N",
            panel=TRAINING,
            limits=(0, 1 << 31),
        ),
    ] = 0
    callbacks: Annotated[
        str,
        Flag(
            "Function of the model file that returns Keras callbacks. Their hooks of epochs run once per epoch.",
            metavar="NAME",
            shows="callbacks, if the model file has it",
            panel=TRAINING,
            sets="ModelSpec.callbacks",
        ),
    ] = ""
    grads_to_wait: Annotated[
        int | None,
        Flag(
            "Average the gradients of N minibatches into one update of the model.",
            metavar="N",
            shows="1; with --use_async=false the number of workers",
            panel=TRAINING,
            limits=(1, 1 << 20),
        ),
    ] = None
    global_batch_size: Annotated[
        int | None,
        Flag(
            "With --use_async=false or AllreduceStrategy: records per update, in place of --minibatch_size. Each of "
            "the --grads_to_wait minibatches gets an equal part.",
            metavar="N",
            shows="--minibatch_size times --grads_to_wait",
            panel=TRAINING,
            limits=(1, 1 << 30),
        ),
    ] = None
    lr_scaling: Annotated[
        Literal["none", "linear", "sqrt"],
        Flag(
            "How the learning rate grows with the minibatches per update (see --grads_to_wait): not at all, by their "
            "number, or by its square root.",
            metavar="RULE",
            panel=TRAINING,
        ),
    ] = "none"
    max_staleness: Annotated[
        str,
        Flag(
            "Delay pulls of weights so that at most N updates are made between the pull of a minibatch and the update "
            "with its gradient. 0: the workers take turns. none: no bound, workers never wait for each other.",
            metavar="N|none",
            shows="one less than the workers that train; no bound if the job starts with one worker",
            panel=TRAINING,
        ),
    ] = ""
    lr_staleness_modulation: Annotated[
        bool,
        Flag(
            "Divide the learning rate of a gradient by its staleness in updates.",
            panel=TRAINING,
            sets="JobSpec.staleness_scaled_rate",
        ),
    ] = False
    distribution_strategy: Annotated[
        Literal["ParameterServerStrategy", "AllreduceStrategy"],
        Flag(
            "How workers exchange gradients: through parameter servers (ParameterServerStrategy), or in a ring of "
            "workers (AllreduceStrategy: synchronous like --use_async=false; elasticdl.layers.Embedding needs "
            "--num_ps_pods).",
            metavar="NAME",
            panel=PROCESSES,
        ),
    ] = "ParameterServerStrategy"
    deterministic: Annotated[
        bool,
        Flag(
            "With AllreduceStrategy: add gradients up in float64, so that the weights are the same in every bit, "
            "whichever workers die or join.",
            panel=PROCESSES,
            sets="JobSpec.deterministic",
        ),
    ] = False
    ring_precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        Flag(
            "With AllreduceStrategy: the type in which sums of gradients travel to all workers. They are added up in "
            "float32 and rounded once.",
            metavar="TYPE",
            shows="float32",
            panel=PROCESSES,
            sets="JobSpec.ring_precision",
        ),
    ] = None
    replica_check_steps: Annotated[
        int,
        Flag(
            "With AllreduceStrategy: compare the weights of all workers after every N updates and at the end "
            "(0 disables). A worker that differs from the others copies the model again.",
            metavar="N",
            panel=PROCESSES,
            limits=(0, _COUNT_MAX),
            sets="JobSpec.replica_check_steps",
        ),
    ] = 100
    spare_workers: Annotated[
        int,
        Flag(
            "Workers that have built the model, and take the place of workers that die. Each needs the memory "
            "of a worker, and no CPU while it waits.",
            metavar="N",
            panel=PROCESSES,
            limits=(0, SPARES_MAX),
            sets="JobSpec.spare_workers",
        ),
    ] = 0
    checkpoint_steps: Annotated[
        int,
        Flag(
            "Take a snapshot every N steps, in addition to one every 30 s (0 disables).",
            metavar="N",
            panel=STORAGE,
            limits=(0, _COUNT_MAX),
            sets="JobSpec.snapshot_steps",
        ),
    ] = 0
    output: Annotated[
        str,
        Flag(
            "Folder for the trained model (saved_model and model.keras). Without it the model is not exported.",
            metavar="DIR",
            panel=RUN,
        ),
    ] = ""
    export_tables: Annotated[
        ExportTables,
        Flag(
            "Where the exported model has the tables that the parameter servers serve: model (in its files), parquet "
            "(beside it, as Parquet files of any size), or auto (parquet if the model would be above 2 GiB or a table "
            "has no input_dim).",
            metavar="WHERE",
            panel=RUN,
            sets="JobSpec.export_tables",
        ),
    ] = ExportTables.AUTO
    export_weights: Annotated[
        bool,
        Flag(
            "Write only the weights to --output: model.weights.h5, for the load_weights() of the model that the model "
            "file makes.",
            panel=RUN,
            sets="JobSpec.export_weights",
        ),
    ] = False
    tensorboard_log_dir: Annotated[
        str,
        Flag(
            "Folder or s3://bucket/prefix for TensorBoard event files, which are written while the job runs: loss, "
            "metrics, throughput, staleness, goodput, number of workers. Each job has a folder DIR/JOB of its own.",
            metavar="DIR",
            panel=RUN,
        ),
    ] = ""
    dry_run: Annotated[
        bool, Flag("Validate everything, print the plan, try the model on one batch, and exit.", panel=RUN)
    ] = False

    @property
    def evaluates_epochs(self) -> bool:
        """Whether the model is evaluated at the end of each epoch, if there is validation data."""
        if self.evaluate_every is None:
            return not (self.evaluation_steps or self.evaluation_throttle_secs)
        return self.evaluate_every == "epoch"

    @property
    def best(self) -> BestModel | None:
        """How evaluated models are compared; None: they are not."""
        patience = self.early_stopping_patience
        return best_model(self.save_best, self.save_best_mode, min_delta=self.min_delta, patience=patience)

    def check(self) -> None:
        """Refuse values out of range, flags that contradict each other, and what this version can't do."""
        for name, flag in flags_of(type(self)).items():
            flag.check(name, getattr(self, name))
        self._check_strategy()
        self._check_export()
        self._check_max_staleness()
        for name in ("lr_staleness_modulation", "max_staleness"):
            if self.is_synchronous and getattr(self, name):
                raise UserError(
                    f"--{name} needs --use_async=true: gradients of synchronous training are never stale.", usage=True
                )
        self._check_global_batch_size()
        if self.lr_scaling != "none" and not self.is_synchronous and self.batches_per_update == 1:
            raise UserError(
                f"--lr_scaling={self.lr_scaling} changes nothing: an asynchronous update has one minibatch.",
                hint="Give --use_async=false, or --grads_to_wait.",
                usage=True,
            )
        if self.min_delta and not self.best:
            raise UserError("--min_delta needs --save_best or --early_stopping_patience.", usage=True)
        if self.best and not self.validation_data:
            given = f"--save_best={self.save_best}" if self.save_best else "--early_stopping_patience"
            raise UserError(f"{given} compares results on validation data; give --validation_data.", usage=True)
        if self.early_stopping_patience and not self.evaluates_epochs:
            raise UserError("--early_stopping_patience counts epochs; give --evaluate_every=epoch.", usage=True)
        if self.detach and self.dry_run:
            raise UserError("--dry_run starts no job, so it can't be combined with --detach.", usage=True)
        if self.checkpoint_dir and self.storage:
            raise UserError(
                "--checkpoint_dir and --storage are two names of the same flag; give only one of them.", usage=True
            )

    def _check_export(self) -> None:
        if self.export_tables is not ExportTables.AUTO and not self.output:
            raise UserError(f"--export_tables={self.export_tables.value} needs --output.", usage=True)
        if self.export_weights and not self.output:
            raise UserError("--export_weights needs --output.", usage=True)
        if self.export_weights and self.export_tables is ExportTables.PARQUET:
            raise UserError("--export_weights writes one file, with the tables. Leave --export_tables out.", usage=True)

    def _check_max_staleness(self) -> None:
        given = self.max_staleness or _UNBOUNDED
        if given != _UNBOUNDED and not given.isdecimal():
            raise UserError(
                f"--max_staleness={given}: give a number of updates, or {_UNBOUNDED!r} for no bound.", usage=True
            )
        check_range("--max_staleness", self.staleness_bound or 0, 0, _STALENESS_MAX)

    def check_given(self, given: Collection[str]) -> None:
        """Refuse options that are given, if only with their default values, and have no effect; ``given``: their names.

        Raises:
            UserError: one of them has no effect.
        """
        if self.strategy is not Strategy.ALLREDUCE:
            return
        if self.use_async == "true" and "use_async" in given:
            raise UserError(
                "--use_async=true can't be combined with --distribution_strategy=AllreduceStrategy: a ring always "
                "trains synchronously. Leave it out.",
                usage=True,
            )
        self._refuse_useless(given)

    def _check_strategy(self) -> None:
        """Refuse what the strategy has no use for."""
        if self.deterministic and self.strategy is not Strategy.ALLREDUCE:
            raise UserError(
                "--deterministic needs --distribution_strategy=AllreduceStrategy. Parameter servers always add up in "
                "float64 with --use_async=false.",
                usage=True,
            )
        if self.deterministic and self.ring_precision not in (None, "float32"):
            raise UserError(
                f"--ring_precision={self.ring_precision} rounds sums, and --deterministic adds up in float64. Leave "
                "one of them out.",
                usage=True,
            )
        self._refuse_useless(plain_values(self))

    def _refuse_useless(self, given: Collection[str]) -> None:
        ring, has_ring = "--distribution_strategy=AllreduceStrategy", self.strategy is Strategy.ALLREDUCE
        for option in ("replica_check_steps", "ring_precision"):
            if option in given and not has_ring:
                raise UserError(f"--{option} needs {ring}.", usage=True)
        useless = {"lr_staleness_modulation", "max_staleness"} & set(given)
        if useless and has_ring:
            raise UserError(
                f"--{min(useless)} has no effect with {ring}, which has no stale gradients. Leave it out.", usage=True
            )
        later = {"initial_model", "platform"} & plain_values(self).keys()
        if later and has_ring and self.num_ps_pods:
            option = min(later)
            given_as = f"--{option}={getattr(self, option)}"
            raise UserError(f"{given_as} can't be combined with --num_ps_pods and {ring} yet.", usage=True)

    def _check_global_batch_size(self) -> None:
        size, parts = self.global_batch_size, self.batches_per_update
        if size is None:
            return
        if not self.is_synchronous:
            raise UserError(
                "--global_batch_size needs --use_async=false. Asynchronous updates have --minibatch_size records.",
                usage=True,
            )
        if self.minibatch_size != MINIBATCH_SIZE:
            raise UserError(
                f"--global_batch_size={size} is in place of --minibatch_size; give only one of them.", usage=True
            )
        if size % parts:
            near = max(parts, round(size / parts) * parts)
            raise UserError(
                f"--global_batch_size={size} can't be divided into {parts} minibatches of equal size. "
                f"Use --global_batch_size={near}, or another --grads_to_wait.",
                usage=True,
            )

    @property
    def strategy(self) -> Strategy:
        """How workers exchange gradients."""
        return Strategy(self.distribution_strategy)

    @property
    def ps_pods(self) -> int:
        """Processes of parameter servers."""
        return self.num_ps_pods or (0 if self.strategy is Strategy.ALLREDUCE else 1)

    @property
    def ps(self) -> int:
        """``JobSpec.ps``: the first worker of a ring is one, too."""
        return self.ps_pods + (self.strategy is Strategy.ALLREDUCE)

    @property
    def is_synchronous(self) -> bool:
        """Whether every update is made of minibatches that were computed from the same weights."""
        return self.use_async == "false" or self.strategy is Strategy.ALLREDUCE

    @property
    def staleness_bound(self) -> int | None:
        """The greatest staleness that was asked for, in updates; None: no number was."""
        return int(self.max_staleness) if self.max_staleness.isdecimal() else None

    @property
    def staleness_by_workers(self) -> bool:
        """Whether the number of workers bounds the staleness: the default of several asynchronous workers."""
        return not self.max_staleness and not self.is_synchronous and self.num_workers > 1

    @property
    def batches_per_update(self) -> int:
        """Minibatches that are averaged into one update."""
        return self.grads_to_wait or (self.num_workers if self.is_synchronous else 1)

    @property
    def learning_rate_scale(self) -> float:
        """Factor of the optimizer's learning rate."""
        return math.pow(self.batches_per_update, {"none": 0.0, "linear": 1.0, "sqrt": 0.5}[self.lr_scaling])

    @property
    def records_per_minibatch(self) -> int:
        """Records of a minibatch: ``--minibatch_size``, or its part of ``--global_batch_size``."""
        return self.global_batch_size // self.batches_per_update if self.global_batch_size else self.minibatch_size


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
        """Refuse values out of range and flags that contradict each other."""
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

    kind: ClassVar[JobKind] = JobKind.EVALUATE

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

    kind: ClassVar[JobKind] = JobKind.PREDICT

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
        return tuple(dict.fromkeys(listed(self.keep_columns)))


CommandFlags = TrainFlags | EvaluateFlags | PredictFlags
COMMAND_FLAGS: Mapping[JobKind, type[CommandFlags]] = MappingProxyType(
    {flags.kind: flags for flags in (TrainFlags, EvaluateFlags, PredictFlags)}
)


def best_model(metric: str, mode: str, *, min_delta: float, patience: int) -> BestModel | None:
    """How evaluated models are compared; None: they are not.

    Args:
        metric: such as ``val_loss``; empty: no model is kept.
        mode: ``min``, ``max``, or ``auto``, which depends on the metric's name.
        min_delta: least change that counts as better.
        patience: epochs without a better value after which training ends; 0: never.
    """
    if not (metric or patience):
        return None
    name = (metric or "val_loss").removeprefix("val_")
    is_greatest = any(part in name.lower() for part in _GREATEST_IS_BEST)
    return BestModel(
        metric=name,
        is_max=is_greatest if mode == "auto" else mode == "max",
        min_delta=min_delta,
        save=bool(metric),
        patience=patience,
    )
