"""What is done to gradients before they leave the worker."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("value", "finite"), [(1.0, True), (0.0, True), (3e38, True), (np.nan, False), (np.inf, False), (-np.inf, False)]
)
def test_only_nan_and_infinity_are_not_finite(value: float, finite: bool) -> None:
    from elasticdl.worker.model.gradients import all_finite

    assert all_finite([np.ones([2, 3]), np.array([0.5, value], np.float32), np.zeros([0])]) is finite


@pytest.mark.parametrize(("value", "finite"), [(1e18, True), (3e38, False), (np.nan, False), (-np.inf, False)])
def test_a_finite_sum_of_squares_shows_that_all_values_are_finite(value: float, finite: bool) -> None:
    import tensorflow as tf

    from elasticdl.worker.model.gradients import squares_finite

    check = tf.function(squares_finite, autograph=False)
    tensors = [tf.ones([2, 3]), tf.constant([0.5, value], tf.float32), tf.zeros([0])]
    assert bool(check(tf.constant(1.0), tensors)) is finite
    assert not check(tf.constant(np.nan, tf.float32), tensors[:1])
