"""The numbers that decisions depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticdl.controller.core.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a change is worth its cost."""

    gain_min: float = 0.1
    """A worker must add this fraction of what the first worker does."""
    start_s: float = 4.0
    """From the order of a worker to its first batch."""
    horizon_s: float = 60.0
    """A change must win back its own pause within this time."""
    refusal_pause_s: float = 60.0
    """No growth for this time after an order was refused, or a pod could not start."""
    ps_load_high: float = 0.9
    """More ps above this busy fraction."""
    ps_load_low: float = 0.8
    """Fewer ps if the others would stay below this busy fraction."""
    workers_per_ps: float = 4.0
    """Workers that one ps is trusted with until its load is measured."""
    ps_moves: int = 4
    """Most ps of one job that move at the same time."""

    def may_grow(self, job: Job, now_s: float) -> bool:
        """Whether nothing was refused lately, or would be now."""
        if job.forbidden:
            return False
        return job.refused_s is None or now_s - job.refused_s >= self.refusal_pause_s

    def left_s(self, job: Job) -> float:
        """For how long a worker that is ordered now trains, as far as that counts."""
        return min(self.horizon_s, math.inf if job.remaining_s is None else job.remaining_s) - self.start_s

    def worth(self, job: Job, workers: int) -> bool:
        """Whether one more worker adds something, and wins back the pause of its arrival."""
        gain = job.curve.gain(workers)
        left_s = self.left_s(job)
        lost = job.pause_s and job.pause_s * job.curve.speed(workers) / max(job.curve.speed(1), 1e-9)
        return gain >= self.gain_min and left_s > 0 and gain * left_s > lost

    def ps_wanted(self, job: Job, workers: int, ps: int) -> int:
        """How many ps a number of workers needs, between the job's min and max."""
        low, high = self.workers_per_ps, self.workers_per_ps
        if job.ps_load is not None and job.ps_load_workers > 0 and (measured_ps := job.ps_load_ps or ps) > 0:
            load = max(job.ps_load, 1e-6) * measured_ps / job.ps_load_workers  # What one worker is for one ps.
            low, high = self.ps_load_low / load, self.ps_load_high / load
        needed, enough = math.ceil(workers / high - 1e-9), math.ceil(workers / low - 1e-9)
        wanted = needed if ps < needed else min(ps, max(enough, needed)) if job.ps_load is not None else ps
        return min(max(wanted, job.ps.min), job.ps.max)
