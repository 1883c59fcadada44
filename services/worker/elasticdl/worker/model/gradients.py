"""What is done to gradients before they leave the worker: unscaling, and clipping over the whole gradient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from elasticdl.shipping.gradients import on_parts
from elasticdl.worker.model.optimizers import TranslatedOptimizer

LOSS_SCALE_INITIAL = 2.0**15
LOSS_SCALE_MIN = 2.0**-15
"""What does not fit into float16 with this scale is not a matter of scaling."""


def clip(gradients: list[Any], optimizer: TranslatedOptimizer) -> list[Any]:
    """Clip as the Keras optimizer would: one kind only, norms over all parts of each gradient.

    Args:
        gradients: float32, tensors or in parts.
    """
    if optimizer.clipnorm > 0:
        return [tf.clip_by_norm(gradient, optimizer.clipnorm) for gradient in gradients]
    if optimizer.global_clipnorm > 0 and gradients:
        clipped, _ = tf.clip_by_global_norm(gradients, optimizer.global_clipnorm)
        return [tf.convert_to_tensor(gradient) for gradient in clipped]  # Keras adds the parts up here.
    if (limit := optimizer.clipvalue) > 0:
        return [on_parts(lambda parts: tf.clip_by_value(parts, -limit, limit), gradient) for gradient in gradients]
    return gradients


def magnitudes_of(gradient: Any, power: int) -> Any:
    """The sums over the parts of each row of their squares or absolute values, in the variable's shape.

    Args:
        gradient: float32; of a tensor, each element is its own part.
        power: see ``Optimizer.power``; not 0.
    """
    return tf.convert_to_tensor(on_parts(tf.square if power == 2 else tf.abs, gradient))


def squares_finite(loss: Any, tensors: list[Any]) -> Any:
    """Whether loss and squares of float32 tensors have a finite sum, as a scalar: then none is NaN or infinite.

    One pass without a copy shows it. The sum also overflows where values are finite but above 1e19 or so, which
    ``all_finite`` tells apart: a condition in the compiled step would cost each batch more than the pass.
    """
    return tf.math.is_finite(tf.add_n([loss, *(tf.nn.l2_loss(tensor) for tensor in tensors)]))


def all_finite(arrays: Iterable[Any]) -> bool:
    """Whether arrays hold neither NaN nor infinity."""
    return all(bool(np.isfinite(array).all()) for array in arrays)


@dataclass(slots=True, kw_only=True)
class LossScale:
    """Dynamic loss scale of mixed_float16, local to a worker: halved at an overflow, doubled after a quiet while."""

    value: float = LOSS_SCALE_INITIAL
    growth_steps: int = 2000
    _quiet: int = 0

    @property
    def is_least(self) -> bool:
        """Whether it can't be halved any more."""
        return self.value <= LOSS_SCALE_MIN

    def update(self, *, finite: bool, scale: float) -> None:
        """Learn from one step.

        Args:
            scale: the scale that it was computed with. Several steps that overflow with the same one halve it once.
        """
        if not finite:
            self.value, self._quiet = min(self.value, max(scale / 2, LOSS_SCALE_MIN)), 0
            return
        self._quiet += 1
        if self._quiet >= self.growth_steps:
            self.value, self._quiet = self.value * 2, 0


def loss_scale(model: Any, optimizer: TranslatedOptimizer) -> LossScale | None:
    """The loss scale that a model needs: one where a layer computes in float16 or the user asks for one."""
    half = any(layer.compute_dtype == "float16" for layer in model._flatten_layers())
    if not half and not optimizer.loss_scale:
        return None
    return LossScale(value=optimizer.loss_scale or LOSS_SCALE_INITIAL, growth_steps=optimizer.loss_scale_growth_steps)
