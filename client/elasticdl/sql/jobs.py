"""What a statement needs of jobs. The command line and the Python API each have an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import Flag, flags_of
from elasticdl.shared.kubernetes.options import KubernetesFlags

COMMANDS: Mapping[str, type] = MappingProxyType(
    {"train": TrainFlags, "evaluate": EvaluateFlags, "predict": PredictFlags}
)
"""The commands that run the jobs of statements -> their flags, beside those of Kubernetes."""
KUBERNETES = "kubernetes"
"""The platform whose jobs run in pods, which reach nothing of this machine."""


def flags_of_command(command: str) -> dict[str, Flag]:
    """All flags of a command, by name."""
    return {**flags_of(COMMANDS[command]), **flags_of(KubernetesFlags)}


class JobRefusedError(ElasticDLError):
    """A job was refused before it began. Nothing is left of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedJob:
    """A job that has succeeded."""

    job: str
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOfTraining:
    """The job of a training that has no version, from its log.

    Attributes:
        state: such as ``succeeded``, ``stopped`` or ``interrupted``.
        resume: the command that continues it; empty: it can't be continued.
    """

    job: str
    state: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    resume: str = ""


class Jobs(Protocol):
    """Runs jobs."""

    def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
        """Run a job to its end. Its progress is shown, and so is the reason if it fails.

        Args:
            command: ``train``, ``evaluate`` or ``predict``.
            flags: by name, as the Python API takes them.
            report: file for the report.

        Raises:
            JobRefusedError: it was not started.
            ElasticDLError: the job has not succeeded.
            KeyboardInterrupt: the user interrupted it. On this machine it has been stopped, and the user was told how
                to resume it; on Kubernetes it continues.
        """

    def find(self, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
        """The job of a training; None: there is none, or it is gone, or its cluster can't be reached.

        Args:
            output: folder to which it exports its model.
            options: of the job: its platform, and on Kubernetes its name and namespace.
        """
