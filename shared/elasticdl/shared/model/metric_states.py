"""Metric states as arrays: added up over disjoint sets of batches, and turned into what travels.

The master, which has no arrays, adds up what travels by itself (``elasticdl.master.core.training.bookkeeping``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from elasticdl.shared.job.tasks import MetricStates

MetricArrays = Mapping[str, list[npt.NDArray[np.float64]]]
"""Metric -> its state variables; states of disjoint batches add up. The mean loss is the metric ``loss``."""


def sum_states(many: Iterable[MetricArrays]) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Add up states of disjoint batches, in their order; the arrays are the caller's.

    A metric that only some of them have is the sum over those.

    Raises:
        ValueError: a metric has another number of variables, or other shapes, in one of them.
    """
    total: dict[str, list[npt.NDArray[np.float64]]] = {}
    for states in many:
        for name, arrays in states.items():
            known = total.get(name)
            total[name] = (
                [array.copy() for array in arrays]
                if known is None
                else [mine + theirs for mine, theirs in zip(known, arrays, strict=True)]
            )
    return total


def encode_states(states: MetricArrays) -> MetricStates:
    """Metric states as they travel."""
    return {name: tuple(np.asarray(array, "<f8").tobytes() for array in arrays) for name, arrays in states.items()}


def decode_states(states: MetricStates) -> dict[str, list[npt.NDArray[np.float64]]]:
    """Inverse of ``encode_states``, but for the arrays' shapes: they come out flat."""
    return {name: [np.frombuffer(array, "<f8") for array in arrays] for name, arrays in states.items()}
