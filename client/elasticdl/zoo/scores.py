"""Exact metrics of binary classification."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_SMALLEST = 1e-7


def auc(labels: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Area under the receiver operating characteristic: how often a positive record scores above a negative one.

    Args:
        scores: (records,), any monotone function of the probability; ties count half.

    Returns:
        0 to 1; NaN when all labels are the same.
    """
    positives = int(np.count_nonzero(labels))
    negatives = labels.size - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # 1-based; records with equal scores share their mean rank.
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def log_loss(labels: NDArray[np.bool_], probabilities: NDArray[np.floating]) -> float:
    """Mean binary cross-entropy in nats; ``probabilities``: (records,), of the label being true."""
    p = np.clip(probabilities, _SMALLEST, 1 - _SMALLEST)
    return float(-np.mean(np.where(labels, np.log(p), np.log1p(-p))))
