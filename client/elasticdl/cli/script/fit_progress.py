"""What the launcher says of a job, so that the script can show its progress as ``fit()`` does; see ``fit_lines``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.master.core import State
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.names import PodName
from elasticdl.views.history import epoch_rows
from elasticdl.views.progress import progress_snapshot

Facts = Mapping[str, Any]
"""``steps`` of an epoch, ``batches`` so far, the current ``loss`` or null, and ``epochs``: for each that has ended and
whose metrics are computed, what the ``History`` has of it. Each is sent once."""


def facts_of(state: State, heartbeats: Mapping[PodName, Heartbeat], now_s: float) -> Facts | None:
    """What there is to show; None: the job has not begun."""
    if state.spec is None or state.training is None:
        return None
    steps, progress = state.spec.plan.batches_per_epoch, progress_snapshot(state, heartbeats, now_s, 0.0)
    epochs = ended_epochs(state, steps, is_validated=state.spec.validation is not None)
    return {"steps": steps, "batches": progress.batches[0], "loss": progress.loss, "epochs": epochs}


def ended_epochs(state: State, steps: int, *, is_validated: bool) -> list[dict[str, float | None]]:
    """The logs of the epochs that have ended, up to the first one of which results are missing.

    Args:
        steps: batches of an epoch.
        is_validated: whether each epoch has results on validation data.
    """
    totals = state.training.epochs if state.training else {}
    epochs = []
    for row in epoch_rows(state):
        known = totals.get(row["epoch"] - 1)
        is_computed = known is None or known.merged or state.is_final
        if row["batches"] < steps or not is_computed or (is_validated and not row["validation"]):
            break
        validation = {f"val_{name}": value for name, value in row["validation"].items()}
        rate = {} if row["learning_rate"] is None else {"learning_rate": row["learning_rate"]}
        epochs.append({"loss": row["loss"], **row["metrics"], **validation, **rate})
    return epochs


class Sender:
    """Sends what has changed; see ``RunOptions.watch``."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._seen: Facts | None = None
        self._epochs = 0
        """How many were sent."""

    def watch(self, state: State, heartbeats: Mapping[PodName, Heartbeat], now_s: float) -> None:
        """Send the progress of a job that has begun."""
        if facts := facts_of(state, heartbeats, now_s):
            self.send(facts)

    def send(self, facts: Facts) -> None:
        """Send facts with all epochs so far, if they are others than before; the epochs that were sent are left out."""
        if facts == self._seen:
            return
        self._seen, epochs = facts, facts["epochs"]
        with contextlib.suppress(OSError):  # The script has died, which must not end the job.
            self._send(json.dumps({**facts, "epochs": epochs[self._epochs :]}).encode() + b"\n")
        self._epochs = max(self._epochs, len(epochs))
