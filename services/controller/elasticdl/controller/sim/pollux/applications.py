"""Applications as they were measured: the time of a step by placement, and what a batch is worth in each epoch."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from elasticdl.controller.sim.pollux.data import Data
from elasticdl.shared.errors import UserError

Placement = tuple[int, ...]
"""GPUs on each node of a job, in the order of the nodes."""
EPOCHS = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
"""Application -> epochs after which a job has finished."""
_LOCAL_BATCH_MAX = {"yolov3": 8}
_NODES_MAX = 16
"""Traces end there."""


class Application:
    """One application.

    Args:
        data: where its traces are.
        name: one of ``EPOCHS``.
    """

    def __init__(self, data: Data, name: str) -> None:
        self.name, self.epochs = name, EPOCHS[name]
        self._data = data
        validations = {}
        for file in data.names(f"traces/{name}/validation-"):
            batch_size = int(file.rpartition("-")[2].removesuffix(".csv"))
            columns = "progress", "grad_sqr", "grad_var", "iteration"
            validations[batch_size] = [tuple(float(row[column]) for column in columns) for row in data.rows(file)]
        self._validations = dict(sorted(validations.items()))
        self._sizes = list(self._validations)
        self.batch_min, self.batch_max = self._sizes[0], self._sizes[-1]
        """Of all GPUs together."""
        self._steps: dict[tuple[int, ...], list[tuple[float, float, float]]] = defaultdict(list)
        for row in data.rows(f"traces/{name}/placements.csv"):
            placement = tuple(map(int, row["placement"]))
            point = float(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
            self._steps[placement].append(point)
        local = [point[0] for points in self._steps.values() for point in points]
        self.local_min, self.local_max = int(min(local)), _LOCAL_BATCH_MAX.get(name, int(max(local)))
        """Of one GPU."""
        self.progress = [0.0, *(min(rows[epoch][0] for rows in validations.values()) for epoch in range(self.epochs))]
        """Work that is done after each number of epochs, in batches of the smallest size."""
        self._known_stats: dict[tuple[int, int], tuple[float, float]] = {}
        self._known_steps: dict[tuple[Placement, int], tuple[float, float]] = {}

    def gradient(self, batch_size: int, epoch: int) -> tuple[float, float]:
        """(squared norm, variance) of the gradient in an epoch, between the batch sizes that were measured."""
        if (found := self._known_stats.get((batch_size, epoch))) is None:
            found = self._between_sizes(batch_size, epoch, 1), self._between_sizes(batch_size, epoch, 2)
            self._known_stats[batch_size, epoch] = found
        return found

    def steps(self, batch_size: int, epoch: int) -> float:
        """Steps until the end of an epoch, counted from 0."""
        return self._between_sizes(batch_size, epoch, 3)

    def _between_sizes(self, batch_size: int, epoch: int, column: int) -> float:
        low = max(size for size in self._sizes if size <= batch_size)
        high = min(size for size in self._sizes if size >= batch_size)
        right = self._validations[high][epoch][column]
        if low == high:
            return right
        left = self._validations[low][epoch][column]
        return ((batch_size - low) * right + (high - batch_size) * left) / (high - low)

    def step_s(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        """(seconds of one step, its part for synchronization) with this batch on each GPU."""
        placement = min(placement[start:] + placement[:start] for start in range(len(placement)))
        if (found := self._known_steps.get((placement, local_batch))) is None:
            if (points := self._steps.get(placement)) is not None:
                batches, steps, syncs = zip(*points, strict=True)
                if not batches[0] <= local_batch <= batches[-1]:
                    raise ValueError(f"{self.name} was not measured with a batch of {local_batch} on a GPU")
                found = float(np.interp(local_batch, batches, steps)), float(np.interp(local_batch, batches, syncs))
            else:
                found = self._between(placement, local_batch)
            self._known_steps[placement, local_batch] = found
        return found

    def _between(self, placement: Placement, local_batch: int) -> tuple[float, float]:
        nodes = min(len(placement), _NODES_MAX)
        step, sync = self._interpolator([nodes, sum(placement), local_batch])[0]
        if not step > 0:
            raise ValueError(f"{self.name} was not measured on {placement} with a batch of {local_batch} on a GPU")
        return float(step), float(sync)

    @cached_property
    def _interpolator(self):  # type: ignore[no-untyped-def]  # Of SciPy, which has no types.
        try:
            from scipy.interpolate import LinearNDInterpolator
        except ImportError as error:
            raise UserError("Pollux' traces need SciPy", hint="pip install 'elasticdl[simulation]'") from error
        groups: dict[tuple[int, int, float], list[tuple[float, float]]] = defaultdict(list)
        for placement, points in self._steps.items():
            for batch, step, sync in points:
                groups[len(placement), sum(placement), batch].append((step, sync))
        keys = sorted(groups)
        values = [tuple(np.mean(groups[key], axis=0)) for key in keys]
        for row in self._data.rows(f"traces/{self.name}/scalability.csv"):
            keys.append((int(row["num_nodes"]), int(row["num_replicas"]), float(row["local_bsz"])))
            values.append((float(row["step_time"]), float(row["sync_time"])))
        return LinearNDInterpolator(np.array(keys, dtype=float), np.array(values))
