"""Mutations of the task queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.master.core.job import lifecycle
from elasticdl.shared.job.tasks import TaskMessage


@mutation(
    "a task's message id names the run of the job, because dispatch numbers are reused when a log lost its end",
    protects=Protects.LIVENESS,
)
def run_in_the_message_id() -> Iterator[None]:
    def message_id(self: Any) -> str:
        return f"{self.task.purpose.value}.{self.task.number}.{self.dispatch}"

    def on_lost_log(state: Any, time_s: float, lost: Any) -> None:
        state.lost_logs.append((time_s, lost))

    with replaced(TaskMessage, "message_id", property(message_id)), replaced(lifecycle, "_on_lost_log", on_lost_log):
        yield
