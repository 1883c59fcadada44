"""What Pollux knows of a job: the time of a step, fitted to what was measured so far, and the noise of its gradient.

Goodput is throughput times statistical efficiency (Qiao et al., OSDI 2021, sections 3.1 and 3.2). A step takes
``(compute^c + network^c)^(1/c)`` seconds; compute is linear in the batch of a GPU, network in the number of GPUs, with
other coefficients between nodes than within one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.controller.sim.pollux.applications import Application
from elasticdl.controller.sim.pollux.jobs import Measurement, SimJob, split

Floats = NDArray[np.float64]
Configuration = tuple[int, int]
"""(nodes, GPUs)."""
_BATCH_SIZES = 50
"""Batch sizes that are compared, in geometric steps."""
_ITERATIONS_MAX = 30
_ERROR_MAX = 0.01
"""A fit is used until a new measurement differs by more than this fraction."""
_TINY_S = 1e-8
_OVERLAP_MAX = 10.0
_PRIOR = 0.03
"""Weight of what is assumed without measurements, as a fraction of that of one measurement."""


class StepTime:
    """The fitted time of a step: logarithms of three pairs of coefficients, and the overlap."""

    def __init__(self, measured: Sequence[Measurement], start: Floats | None = None) -> None:
        self._table = np.array(measured, dtype=float)
        self._prior = _prior(self._table)
        self.values = self._fitted(self._prior if start is None else start)

    def seconds(self, nodes: Floats, gpus: Floats, local: Floats, extra: Floats) -> Floats:
        """Of one step with its ``extra`` steps that only add up gradients."""
        compute, step, _ = _times(self.values, nodes, gpus, local)
        return np.asarray(step + extra * compute)

    def error(self, measured: Iterable[Measurement]) -> float:
        """The largest relative difference to some measurements."""
        table = np.array(list(measured), dtype=float)
        compute, step, _ = _times(self.values, *table.T[:3])
        return float(max(np.abs(compute / (table[:, 3] - table[:, 4]) - 1).max(), np.abs(step / table[:, 3] - 1).max()))

    def _fitted(self, values: Floats) -> Floats:
        """Levenberg and Marquardt's method on relative errors."""
        damping, residuals, slopes = 1e-2, *self._residuals(values)
        for _ in range(_ITERATIONS_MAX):
            square = slopes.T @ slopes
            try:
                change = np.linalg.solve(square + damping * np.diag(np.diag(square)), -slopes.T @ residuals)
            except np.linalg.LinAlgError:
                break
            tried = values + np.clip(change, -2.0, 2.0)
            tried_residuals, tried_slopes = self._residuals(tried)
            before, after = residuals @ residuals, tried_residuals @ tried_residuals
            if after >= before:
                damping *= 8
                if damping > 1e6:
                    break
                continue
            values, residuals, slopes, damping = tried, tried_residuals, tried_slopes, max(damping / 4, 1e-9)
            if before - after < 1e-3 * before:
                break
        return values

    def _residuals(self, values: Floats) -> tuple[Floats, Floats]:
        nodes, gpus, local, step_s, sync_s = self._table.T
        compute, step, slopes = _times(values, nodes, gpus, local, with_slopes=True)
        weight = 1 / np.sqrt(len(self._table))
        residuals = np.concatenate(
            (
                np.log(compute / (step_s - sync_s)) * weight,
                np.log(step / step_s) * weight,
                _PRIOR * (values - self._prior),
            )
        )
        return residuals, np.concatenate((slopes * weight, _PRIOR * np.eye(len(values))))


def _prior(table: Floats) -> Floats:
    """Half of the compute time is constant; the network costs little within a node, and 1.1 times as much between."""
    nodes, gpus, local, step_s, sync_s = table.T
    compute = step_s - sync_s
    inside = np.log(
        np.maximum(sync_s[(nodes == 1) & (gpus > 1)].mean() if ((nodes == 1) & (gpus > 1)).any() else 1e-4, 1e-6)
    )
    between = np.log(sync_s[nodes > 1].mean()) if (nodes > 1).any() else inside + 0.1
    return np.array(
        [
            np.log(compute.mean() / 2),
            np.log((compute / local).mean() / 2),
            between,
            between - 3.5,
            inside,
            inside - 3.5,
            -2.0,
        ]
    )


def _times(
    values: Floats, nodes: Floats, gpus: Floats, local: Floats, *, with_slopes: bool = False
) -> tuple[Floats, Floats, Any]:
    """(compute, step, how the logarithms of both change with the values), each for all configurations."""
    constant, by_batch, between, between_more, inside, inside_more = np.exp(np.clip(values[:6], -25.0, 10.0))
    share = 1 / (1 + np.exp(-values[6]))
    overlap = 1 + (_OVERLAP_MAX - 1) * share
    compute = constant + by_batch * local
    more = np.maximum(gpus - 2, 0.0)
    is_between, is_inside = nodes > 1, (nodes <= 1) & (gpus > 1)
    first = np.where(is_between, between, np.where(is_inside, inside, _TINY_S))
    rest = np.where(is_between, between_more * more, np.where(is_inside, inside_more * more, 0.0))
    network = first + rest
    log_compute, log_network = np.log(compute), np.log(network)
    log_sum = np.logaddexp(overlap * log_compute, overlap * log_network)
    step = np.exp(log_sum / overlap)
    if not with_slopes:
        return compute, step, None
    of_compute = np.exp(overlap * log_compute - log_sum)
    of_network = 1 - of_compute
    by_constant, by_local = constant / compute, by_batch * local / compute
    zero = np.zeros_like(compute)
    by_overlap = (of_compute * log_compute + of_network * log_network) / overlap - log_sum / overlap**2
    slopes_compute = np.stack((by_constant, by_local, zero, zero, zero, zero, zero), axis=1)
    slopes_step = np.stack(
        (
            of_compute * by_constant,
            of_compute * by_local,
            np.where(is_between, of_network * first / network, 0.0),
            np.where(is_between, of_network * rest / network, 0.0),
            np.where(is_inside, of_network * first / network, 0.0),
            np.where(is_inside, of_network * rest / network, 0.0),
            by_overlap * (_OVERLAP_MAX - 1) * share * (1 - share),
        ),
        axis=1,
    )
    return compute, step, np.concatenate((slopes_compute, slopes_step))


class Model:
    """What is known of one job. It is learned while the job runs."""

    def __init__(self, application: Application, fixed_batch: int | None = None) -> None:
        self._application, self._fixed_batch = application, fixed_batch
        self._step_time: StepTime | None = None
        self._error_max = _ERROR_MAX
        self._fitted = 0
        """Measurements that the fit has seen."""
        self._gradient: tuple[float, float] | None = None
        self._steps_s: dict[Configuration, Floats] = {}
        self._best: dict[Configuration, tuple[float, int, int]] = {}

    @property
    def known(self) -> bool:
        """Whether the job has trained."""
        return self._step_time is not None

    def learn(self, job: SimJob) -> None:
        """Take what was measured since the last time."""
        if len(job.measured) > self._fitted:
            measured = list(job.measured.values())
            if self._step_time is None or self._step_time.error(measured[self._fitted :]) > self._error_max:
                self._step_time = StepTime(measured, None if self._step_time is None else self._step_time.values)
                self._error_max = max(_ERROR_MAX, 1.2 * self._step_time.error(measured))
                self._steps_s.clear()
                self._best.clear()
            self._fitted = len(measured)
        if job.gradient != self._gradient:
            self._gradient = job.gradient
            self._best.clear()

    def best(self, configurations: Sequence[Configuration]) -> list[tuple[float, int, int]]:
        """(goodput, batch of a GPU, extra steps) for each (nodes, GPUs), with the batch size that gives the most."""
        if new := [each for each in configurations if each not in self._steps_s]:
            self._predict(new)
        assert self._gradient is not None
        square, variance = self._gradient
        for each in configurations:
            if each not in self._best:
                local, extra, scale = _candidates(self._application, self._fixed_batch, each[1])
                goodput = (variance + square) / (variance / scale + square) / self._steps_s[each]
                index = int(goodput.argmax())
                self._best[each] = float(goodput[index]), int(local[index]), int(extra[index])
        return [self._best[each] for each in configurations]

    def _predict(self, configurations: Sequence[Configuration]) -> None:
        assert self._step_time is not None
        candidates = [_candidates(self._application, self._fixed_batch, gpus) for _, gpus in configurations]
        lengths = [len(local) for local, _, _ in candidates]
        nodes, gpus = (np.repeat(column, lengths) for column in np.array(configurations, dtype=float).T)
        local, extra, _ = (np.concatenate(column) for column in zip(*candidates, strict=True))
        seconds = self._step_time.seconds(nodes, gpus, local, extra)
        self._steps_s.update(zip(configurations, np.split(seconds, np.cumsum(lengths)[:-1]), strict=True))


@cache
def _candidates(application: Application, fixed_batch: int | None, gpus: int) -> tuple[Floats, Floats, Floats]:
    """(batch of a GPU, extra steps, batch of all in smallest batches) of each batch size that is possible."""
    if fixed_batch is not None:
        local, extra = (np.array([each], dtype=float) for each in split(application, fixed_batch, gpus))
    else:
        sizes = np.geomspace(
            max(application.batch_min, application.local_min * gpus), application.batch_max, _BATCH_SIZES
        )
        each = sizes / gpus
        extra = np.ceil(each / application.local_max - 1e-8) - 1
        if gpus == 1:
            extra = np.where(each > application.batch_min + 1e-8, np.maximum(extra, 1), extra)
        local = np.ceil(each / (extra + 1) - 1e-8)
        local = np.minimum(local, np.floor(application.batch_max / (gpus * (extra + 1)) + 1e-8))
        allowed = (local >= application.local_min) & (local <= application.local_max)
        local, extra = local[allowed], extra[allowed]
    return local, extra, gpus * local * (extra + 1) / application.batch_min
