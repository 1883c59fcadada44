"""A job, running or ended, on this machine or in a cluster."""

from __future__ import annotations

import html
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.api.commands import run
from elasticdl.shared.errors import ElasticDLError, UserError

_UNSUCCESSFUL = {"failed": "failed", "stopped": "been stopped"}
_FRAME = "width: 100%; height: 40em; border: 0"


class Job:
    """A job by its id, or by its name if only one job has that name.

    Args:
        name: its id or name.
        run_dir: folder that holds one folder per job; ``$ELASTICDL_RUN_DIR`` or the user's own if not given.
        namespace: of the Kubernetes cluster, if it runs in one.

    Every method raises ``UserError`` if there is no such job, and ``ElasticDLError`` if it can't be reached.
    """

    def __init__(self, name: str, *, run_dir: str | Path = "", namespace: str = "") -> None:
        self.name = name
        self._place = [f"--run_dir={run_dir}"] * bool(run_dir) + [f"--namespace={namespace}"] * bool(namespace)

    def __repr__(self) -> str:
        return f"Job({self.name!r})"

    def _repr_html_(self) -> str:
        """What notebooks show: the page of ``elasticdl report --html``, which has progress and curves up to now."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                page = Path(folder, "report.html")
                self._run("report", f"--html={page}")
                text = page.read_text()
        except ElasticDLError as error:
            return f"<pre>{html.escape(str(error))}</pre>"
        # A frame of its own keeps the styles of the page and of the notebook apart.
        return f'<iframe title="{self.name}" srcdoc="{html.escape(text)}" style="{_FRAME}"></iframe>'

    @property
    def report(self) -> dict[str, Any]:
        """What is known about the job up to now: the object that ``elasticdl report --json`` prints."""
        report: dict[str, Any] = json.loads(self._run("report", "--json"))
        return report

    @property
    def state(self) -> str:
        """``succeeded``, ``failed``, ``stopped``, or what the job does at the moment."""
        return str(self.report["state"])

    @property
    def metrics(self) -> dict[str, float]:
        """The last values of all metrics: on the validation data if there is any."""
        metrics: dict[str, float] = self.report["metrics"]
        return metrics

    @property
    def history(self) -> History:
        """Loss and metrics of each epoch and each evaluation."""
        history = self.report["history"]
        return History(history["epochs"], history["evaluations"])

    def wait(self, *, shows: bool = True) -> Job:
        """Return when the job has ended successfully.

        Raises:
            ElasticDLError: it has failed or was stopped.
            KeyboardInterrupt: the user interrupted the call. The job continues; ``stop()`` stops it.
        """
        try:
            self._run("attach", shows=shows)
        except ElasticDLError as error:
            report = self.report
            if report["state"] not in _UNSUCCESSFUL:
                raise
            reason = f": {report['message']}" if report["message"] else ""
            raise ElasticDLError(f"the job {self.name} has {_UNSUCCESSFUL[report['state']]}{reason}") from error
        return self

    def stop(self) -> None:
        """Stop the job. ``elasticdl resume`` continues it."""
        self._run("stop")

    def scale(self, *, workers: int | None = None, ps: int | None = None) -> None:
        """Change the number of workers or parameter servers while the job runs."""
        numbers = {"workers": workers, "ps": ps}
        self._run("scale", *(f"--{name}={number}" for name, number in numbers.items() if number is not None))

    def logs(self, *pods: str, lines: int = 30) -> str:
        """The last lines that the job's processes have logged.

        Args:
            pods: such as ``worker-0``; all if not given.
        """
        return self._run("logs", *pods, f"--lines={lines}")

    def _run(self, command: str, *arguments: str, shows: bool = False) -> str:
        return run(command, self.name, *arguments, *self._place, shows=shows)


@dataclass(frozen=True, slots=True)
class History:
    """What ``fit()`` returns as its history, and all evaluations.

    Attributes:
        epochs: for each epoch, from 1: epoch, loss, metrics, validation, validation_step, learning_rate, batches,
            records, seconds.
        evaluations: for each evaluation: evaluation, epoch, step, reason, metrics, seconds and more, as in the report.
    """

    epochs: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]

    @property
    def history(self) -> dict[str, list[float | None]]:
        """Metric -> one value per epoch, with Keras' names: ``loss``, ``auc``, ``val_loss``, ``val_auc``."""
        rows = [_flat(epoch) for epoch in self.epochs]
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with one row per epoch: ``history``, and ``records``, ``batches`` and ``seconds``.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise UserError("to_pandas() needs pandas", hint="Install it: pip install 'elasticdl[notebook]'") from error
        numbers = [epoch["epoch"] for epoch in self.epochs]
        frame = pd.DataFrame(self.history, index=pd.Index(numbers, name="epoch"))
        for name in ("records", "batches", "seconds"):
            frame[name] = [epoch[name] for epoch in self.epochs]
        return frame


def _flat(epoch: Mapping[str, Any]) -> dict[str, float | None]:
    validation = {f"val_{name}": value for name, value in epoch["validation"].items()}
    return {"loss": epoch["loss"], **epoch["metrics"], **validation}
