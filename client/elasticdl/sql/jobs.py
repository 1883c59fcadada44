"""What a statement needs of jobs. The command line and the Python API each have an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags

COMMANDS: Mapping[str, type] = MappingProxyType(
    {"train": TrainFlags, "evaluate": EvaluateFlags, "predict": PredictFlags}
)
"""The commands that run the jobs of statements -> their flags."""


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
            ElasticDLError: the job has not succeeded.
            KeyboardInterrupt: the user interrupted it. It has been stopped, and the user was told how to resume it.
        """

    def find(self, output: Path) -> JobOfTraining | None:
        """The job that exports its model to a folder; None: there is none, or it is gone."""
