"""What ``--save_best`` and ``--early_stopping_patience`` mean."""

from __future__ import annotations

from elasticdl.shared.job.spec import BestModel

_GREATEST_IS_BEST = ("acc", "auc", "precision", "recall", "f1", "r2")
"""Parts of the names of metrics of which the greatest value is the best."""


def best_model(metric: str, mode: str, *, min_delta: float, patience: int) -> BestModel | None:
    """How evaluated models are compared; None: they are not.

    Args:
        metric: such as ``val_loss``; empty: no model is kept.
        mode: ``min``, ``max``, or ``auto``, which depends on the metric's name.
        min_delta: least change that counts as better.
        patience: epochs without a better value after which training ends; 0: never.
    """
    if not (metric or patience):
        return None
    name = (metric or "val_loss").removeprefix("val_")
    is_greatest = any(part in name.lower() for part in _GREATEST_IS_BEST)
    return BestModel(
        metric=name,
        is_max=is_greatest if mode == "auto" else mode == "max",
        min_delta=min_delta,
        save=bool(metric),
        patience=patience,
    )
