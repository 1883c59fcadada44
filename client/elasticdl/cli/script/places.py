"""Where the jobs of a script run: what a call of ``fit()`` ships there, and what comes back from it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import WEIGHTS_ALONE
from elasticdl.shared.storage.atomic import replace_text

RECORD = "script.json"
"""In a job's folder: the script, and the jobs that its earlier calls of ``fit()`` became."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a job has left.

    Attributes:
        weights: file of the trained weights.
        epochs: the curves of the job's report, one item per epoch.
        storage: URI of the folder that holds the job's snapshots; empty: unknown.
    """

    weights: Path
    epochs: list[Mapping[str, Any]]
    batches_per_epoch: int
    storage: str = ""

    @classmethod
    def of(cls, report: Mapping[str, Any], weights: Path, storage: str) -> Results:
        """What a job's report says."""
        plan = report["plan"]
        batches = plan["batches"] // max(plan["epochs_run"], 1)
        epochs = report["history"]["epochs"]
        return cls(weights=weights, epochs=epochs, batches_per_epoch=batches, storage=storage)


class Place(Protocol):
    """A machine or a cluster. The local folder of a job is ``ROOT/JOB`` in both cases; here ``job`` is an id."""

    @property
    def is_here(self) -> bool:
        """Whether workers see the files of this machine."""
        ...

    @property
    def arguments(self) -> Sequence[str]:
        """Options of ``elasticdl run`` that find the jobs of this place again."""
        ...

    def keep(self, job: str, record: Mapping[str, Any]) -> None:
        """Keep which call of which script a job is."""
        ...

    def record(self, job: str) -> Mapping[str, Any]:
        """What was kept. Raises ``UserError``: nothing was, so it is not the job of a script."""
        ...

    def ship(self, job: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Bring the model and the data in the job's local folder to where workers read them.

        Args:
            values: flags of ``train`` with local paths.

        Returns:
            The flags with the paths that workers see.
        """
        ...

    def is_there(self, job: str) -> bool:
        """Whether a job has begun, so that it can be continued."""
        ...

    def remove(self, job: str) -> None:
        """Remove what was kept and shipped of a job that has not begun."""
        ...

    def completion(self, job: str) -> Sequence[str]:
        """The command that brings a job to its end; empty: it has succeeded."""
        ...

    def reason(self, job: str) -> str:
        """Why a job that has begun has failed, by its report; empty if it has none."""
        ...

    def stopped_in(self, job: str) -> str:
        """URI of the folder that holds the snapshots of a job that was interrupted; empty: unknown, or it continues."""
        ...

    def results(self, job: str) -> AbstractContextManager[Results]:
        """The results of a job that has succeeded; their file may exist only within the context."""
        ...


class LocalPlace:
    """See ``Place``: this machine.

    Args:
        root: folder of the jobs' folders.
        options: those of the command, for the jobs of later calls of ``fit()``.
    """

    def __init__(self, root: Path, options: Sequence[str] = ()) -> None:
        self._root = root
        self.arguments = [f"--run_dir={root}", *options]
        self.is_here = True

    def keep(self, job: str, record: Mapping[str, Any]) -> None:
        """See ``Place``."""
        replace_text(self._root / job / RECORD, json.dumps(record))

    def record(self, job: str) -> Mapping[str, Any]:
        """See ``Place``."""
        try:
            return read_record((self._root / job / RECORD).read_bytes())
        except (OSError, ValueError) as error:
            raise no_such_job(job, str(self._root)) from error

    def ship(self, job: str, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002  It is in the paths.
        """See ``Place``. Workers read the job's folder."""
        return dict(values)

    def is_there(self, job: str) -> bool:
        """See ``Place``."""
        return (self._root / job / "job.json").exists()

    def remove(self, job: str) -> None:
        """See ``Place``."""
        shutil.rmtree(self._root / job, ignore_errors=True)

    def completion(self, job: str) -> Sequence[str]:
        """See ``Place``."""
        return [] if (self._root / job / "output").exists() else ["resume", job, f"--run_dir={self._root}"]

    def reason(self, job: str) -> str:
        """See ``Place``."""
        try:
            return str(self._report(job).get("message", ""))
        except (OSError, ValueError):
            return ""

    def stopped_in(self, job: str) -> str:
        """See ``Place``."""
        record = self._root / job / "job.json"
        return str(json.loads(record.read_text())["storage"]) if record.exists() else ""

    @contextmanager
    def results(self, job: str) -> Iterator[Results]:
        """See ``Place``."""
        yield Results.of(self._report(job), self._root / job / "output" / WEIGHTS_ALONE, self.stopped_in(job))

    def _report(self, job: str) -> Mapping[str, Any]:
        report: Mapping[str, Any] = json.loads((self._root / job / "report.json").read_text())
        return report


def read_record(content: bytes) -> Mapping[str, Any]:
    """What ``Place.keep`` has written. Raises ``ValueError``: it is something else."""
    record = json.loads(content)
    if not isinstance(record, dict) or not isinstance(record.get("before"), list):
        raise ValueError(f"no {RECORD}")
    return record


def no_such_job(job: str, where: str) -> UserError:
    """The error of ``--resume`` with a job that no script has started."""
    return UserError(f"--resume={job}: {where} has no job with this id that a script has started", usage=True)
