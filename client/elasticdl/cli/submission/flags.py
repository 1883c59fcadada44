"""The flags of ``elasticdl train`` as one value, and the small languages that some of them speak."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from elasticdl.shared.errors import UserError

_NEXT_VARIABLE = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WORKERS_MAX = 1024
PS_MAX = 256
"""As many as a model has partitions: ``elasticdl.shared.model.placement.PARTITIONS``."""
_RANGES = {
    "minibatch_size": (1, 1 << 20),
    "num_minibatches_per_task": (1, 1 << 20),
    "num_epochs": (1, 1 << 31),
    "max_step": (0, 1 << 62),
    "seed": (0, (1 << 63) - 1),
    "evaluation_steps": (0, 1 << 62),
    "evaluation_throttle_secs": (0, 1 << 31),
    "grads_to_wait": (1, 1 << 20),
    "num_workers": (1, WORKERS_MAX),
    "num_ps_pods": (1, PS_MAX),
    "checkpoint_steps": (0, 1 << 62),
}
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class Platform(Enum):
    """Where a job runs."""

    LOCAL = "local"
    KUBERNETES = "kubernetes"


class Strategy(Enum):
    """How workers share what they learn."""

    PARAMETER_SERVER = "ParameterServerStrategy"
    ALLREDUCE = "AllreduceStrategy"


class ShuffleMode(Enum):
    """What the seed reorders; the values are those of ``elasticdl.shared.job.plan.Shuffle``."""

    NONE = "none"
    TASKS = "tasks"
    RECORDS = "records"


class LogLevel(Enum):
    """How much services write into their logs."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainFlags:
    """What was typed; every field is the flag of the same name."""

    model_def: str
    training_data: str
    model_zoo: str = ""
    model_params: str = ""
    validation_data: str = ""
    output: str = ""
    csv_header: bool = True
    csv_delimiter: str = ","
    job_name: str = ""
    minibatch_size: int = 64
    num_minibatches_per_task: int = 8
    num_epochs: int = 1
    max_step: int = 0
    shuffle: ShuffleMode = ShuffleMode.RECORDS
    seed: int | None = None
    evaluation_steps: int = 0
    evaluation_throttle_secs: float = 0.0
    grads_to_wait: int = 1
    lr_staleness_modulation: bool = False
    eager: bool = False
    num_workers: int = 2
    num_ps_pods: int = 1
    distribution_strategy: Strategy = Strategy.PARAMETER_SERVER
    platform: Platform = Platform.LOCAL
    envs: str = ""
    checkpoint_steps: int = 0
    checkpoint_dir: str = ""
    storage: str = ""
    nats_url: str = ""
    run_dir: Path | None = None
    report: Path | None = None
    log_level: LogLevel = LogLevel.INFO
    dry_run: bool = False
    debug: bool = False

    def check(self) -> None:
        """Refuse what this version can't do, and flags that contradict each other.

        Raises:
            UserError: one sentence.
        """
        if self.platform is Platform.KUBERNETES:
            raise UserError("--platform=kubernetes is not available in this version; use --platform=local.", usage=True)
        if self.distribution_strategy is Strategy.ALLREDUCE:
            raise UserError(
                "--distribution_strategy=AllreduceStrategy is not available in this version; "
                "use --distribution_strategy=ParameterServerStrategy.",
                usage=True,
            )
        for flag, (low, high) in _RANGES.items():
            value = getattr(self, flag)
            if value is not None and not low <= value <= high:
                raise UserError(f"--{flag}={value} is out of range", hint=f"It must be {low} to {high}.", usage=True)
        if self.checkpoint_dir and self.storage:
            raise UserError(
                "--checkpoint_dir and --storage both say where snapshots are kept; give one of them.", usage=True
            )


def parse_envs(text: str) -> dict[str, str]:
    """Split ``--envs`` (``NAME=value,NAME=value``); a comma belongs to a value unless ``NAME=`` follows it.

    Raises:
        UserError: an item has no name.
    """
    variables: dict[str, str] = {}
    for item in _NEXT_VARIABLE.split(text) if text else ():
        name, equals, value = item.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UserError(f"--envs: {item!r} is not of the form NAME=value", usage=True)
        variables[name] = value
    return variables


def plain_switches(arguments: list[str], switches: frozenset[str]) -> list[str]:
    """Turn ``--switch=true`` into ``--switch`` and drop ``--switch=false``, the way the old command line took them."""
    kept = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if equals and name in switches and value.lower() in _FALSE:
            continue
        kept.append(name if equals and name in switches and value.lower() in _TRUE else argument)
    return kept
