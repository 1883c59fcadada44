"""A job of the simulated cluster: its progress with the GPUs that it has."""

from __future__ import annotations

import math
from typing import Protocol

from elasticdl.controller.sim.pollux.applications import Application, Placement
from elasticdl.controller.sim.pollux.data import Submission

Measurement = tuple[int, int, int, float, float]
"""(nodes, GPUs, batch on each GPU, seconds of a step, its part for synchronization)."""


class Batching(Protocol):
    """Chooses the batch size of a job."""

    def batches(self, job: SimJob, placement: Placement) -> tuple[int, int]:
        """(batch on each GPU, steps that only add up gradients before each step that synchronizes)."""


class AsSubmitted:
    """The batch size that the user asked for, on any number of GPUs."""

    def batches(self, job: SimJob, placement: Placement) -> tuple[int, int]:
        """The same batch, divided by the GPUs. What does not fit into a GPU is added up."""
        return split(job.application, job.spec.batch_size, sum(placement))


def split(application: Application, batch_size: int, gpus: int) -> tuple[int, int]:
    """Divide a batch by the GPUs: (batch on each of them, steps that only add up gradients)."""
    local = math.ceil(batch_size / gpus - 1e-8)
    extra = math.ceil(local / application.local_max - 1e-8) - 1
    if gpus == 1 and batch_size > application.batch_min:
        extra = max(1, extra)  # The noise of gradients can't be measured with one batch.
    local = math.ceil(local / (extra + 1) - 1e-8)
    return min(local, application.batch_max // (gpus * (extra + 1))), extra


class SimJob:
    """One job. Times are in whole seconds, work in batches of the smallest size."""

    def __init__(self, spec: Submission, application: Application, batching: Batching) -> None:
        self.spec, self.application, self._batching = spec, application, batching
        self.placement: Placement = ()
        self.end_s: int | None = None
        self.epoch = 0
        self.gpu_s = 0
        """Seconds of GPUs that it has had."""
        self.restarts = -1
        """-1 before the first start, which is no restart."""
        self.gradient: tuple[float, float] | None = None
        """(squared norm, variance) when it trained last."""
        self.measured: dict[tuple[int, int, int], Measurement] = {}
        """(nodes, GPUs, batch on each GPU) -> what was measured there first."""
        self._progress = 0.0
        self._pause_s = 0
        self._batches = (0, 0)

    def place(self, placement: Placement, pause_s: int) -> None:
        """Give it other GPUs; none: it waits."""
        self.placement = placement
        if placement:
            self._batches = self._batching.batches(self, placement)
            self._pause_s = pause_s
            self.restarts += 1

    def advance(self, now_s: int, seconds: int) -> None:
        """Train from ``now_s`` for some seconds, or until it has finished."""
        if not self.placement or self.end_s is not None:
            return
        pause_s = min(self._pause_s, seconds)
        self._pause_s -= pause_s
        now_s, seconds = now_s + pause_s, seconds - pause_s
        self.gpu_s += pause_s * sum(self.placement)
        while seconds > 0 and self.end_s is None:
            speed = self._speed()
            next_progress = self.application.progress[self.epoch + 1]
            if self._progress + speed * seconds < next_progress:
                self._progress += speed * seconds
                spent_s = seconds
            else:
                spent_s = round((next_progress - self._progress) / speed)
                self._progress = next_progress
                self.epoch += 1
                if self.epoch == self.application.epochs:
                    self.end_s = now_s + spent_s
            now_s, seconds = now_s + spent_s, seconds - spent_s
            self.gpu_s += spent_s * sum(self.placement)
            if self.end_s is None:
                self._batches = self._batching.batches(self, self.placement)

    def _speed(self) -> float:
        """Work per second: what a batch is worth, by the noise of its gradient, for the time that it takes."""
        placement, (local, extra) = self.placement, self._batches
        gpus = sum(placement)
        batch_size = gpus * local * (extra + 1)
        scale = batch_size / self.application.batch_min
        step_s, sync_s = self.application.step_s(placement, local)
        square, variance = self.gradient = self.application.gradient(batch_size, self.epoch)
        key = len(placement), gpus, local
        if key not in self.measured:
            self.measured[key] = *key, step_s, sync_s
        worth = (variance + square) / (variance / scale + square)
        return worth / (step_s + (step_s - sync_s) * extra)
