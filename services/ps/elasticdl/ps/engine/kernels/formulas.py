"""Keras 3's update formulas, each written once and used for dense blocks and for rows.

A formula moves ``size`` weights at ``state[base:]``; their slots lie ``stride``, ``2 * stride``... floats further. For
a row, ``stride`` is the row's width (one slab ``[weights | slots]``); for dense blocks it is the length of the buffer.
Arithmetic is float32 in Keras' order of operations, without contraction, so results agree to the last bits.

``coefficients`` is a float32 vector: ``[0]`` the learning rate, ``[1]`` the decoupled weight decay, the
rest per formula.
Decay comes first, as in ``keras.optimizers.Optimizer._apply_weight_decay``; 0 leaves the weights exactly as they are.

``magnitudes`` has what stands for the square of a gradient (ADAMAX: for its absolute value), see ``Optimizer.power``;
without elements, the gradient says it.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import (
    FLOATS,
    FLOATS_OUT,
    INT64S,
    inlined,
    kernel,
    prefetch_floats,
)
from elasticdl.shared.model.kernels.missed_updates import FTRL_RATE_MIN

SGD, MOMENTUM, NESTEROV, ADAGRAD, ADAM, AMSGRAD, RMSPROP, FTRL, ADADELTA, ADAMAX, NADAM, LION = range(12)

COEFFICIENTS = 10
"""Length of the coefficient vector."""
_AHEAD = 12
"""Rows between the prefetch of a slab and its update."""

Floats = NDArray[np.float32]


@inlined
def _sgd(state: Floats, base: int, size: int, gradient: Floats, c: Floats) -> None:
    rate, decay = c[0], c[1]
    weight = state[base : base + size]
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        weight[i] = w - gradient[i] * rate


@inlined
def _momentum(state: Floats, base: int, stride: int, size: int, gradient: Floats, c: Floats, nesterov: bool) -> None:
    """``c[2]`` momentum; slot: momentum."""
    rate, decay, momentum = c[0], c[1], c[2]
    weight = state[base : base + size]
    velocity = state[base + stride : base + stride + size]
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        v = velocity[i] * momentum - gradient[i] * rate
        velocity[i] = v
        weight[i] = w + (v * momentum - gradient[i] * rate if nesterov else v)


@inlined
def _adagrad(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` epsilon; slot: accumulator."""
    rate, decay, epsilon = c[0], c[1], c[2]
    weight = state[base : base + size]
    accumulator = state[base + stride : base + stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        a = accumulator[i] + s
        accumulator[i] = a
        weight[i] = w - (rate * g) / math.sqrt(a + epsilon)


@inlined
def _adam(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` 1 - beta_1, ``c[3]`` 1 - beta_2, ``c[4]`` epsilon, ``c[5]`` bias-corrected rate.

    Slots: momentum, velocity.
    """
    rate, decay, one_minus_beta_1, one_minus_beta_2, epsilon, corrected_rate = c[0], c[1], c[2], c[3], c[4], c[5]
    weight = state[base : base + size]
    first = state[base + stride : base + stride + size]
    second = state[base + 2 * stride : base + 2 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        m = first[i] + (g - first[i]) * one_minus_beta_1
        v = second[i] + (s - second[i]) * one_minus_beta_2
        first[i] = m
        second[i] = v
        weight[i] = w - (m * corrected_rate) / (math.sqrt(v) + epsilon)


@inlined
def _amsgrad(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """As ``_adam``; slots: momentum, velocity, velocity_hat."""
    rate, decay, one_minus_beta_1, one_minus_beta_2, epsilon, corrected_rate = c[0], c[1], c[2], c[3], c[4], c[5]
    weight = state[base : base + size]
    first = state[base + stride : base + stride + size]
    second = state[base + 2 * stride : base + 2 * stride + size]
    second_max = state[base + 3 * stride : base + 3 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        m = first[i] + (g - first[i]) * one_minus_beta_1
        v = second[i] + (s - second[i]) * one_minus_beta_2
        v_hat = max(second_max[i], v)
        first[i] = m
        second[i] = v
        second_max[i] = v_hat
        weight[i] = w - (m * corrected_rate) / (math.sqrt(v_hat) + epsilon)


@inlined
def _rmsprop(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` rho, ``c[3]`` 1 - rho, ``c[4]`` epsilon, ``c[5]`` momentum, ``c[6]`` centered (0 or 1).

    Slots: velocity, then average_gradient when centered, then momentum when it is not 0.
    """
    rate, decay, rho, one_minus_rho, epsilon, momentum, centered = c[0], c[1], c[2], c[3], c[4], c[5], c[6]
    weight = state[base : base + size]
    velocity = state[base + stride : base + stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        v = rho * velocity[i] + one_minus_rho * s
        velocity[i] = v
        slot = base + 2 * stride + i
        denominator = v
        if centered != 0:
            average = rho * state[slot] + one_minus_rho * g
            state[slot] = average
            denominator = v - average * average
            slot += stride
        increment = (rate * g) / math.sqrt(denominator + epsilon)
        if momentum > 0:
            increment = momentum * state[slot] + increment
            state[slot] = increment
        weight[i] = w - increment


@inlined
def _power(value: np.float32, exponent: np.float32) -> np.float32:
    if exponent == 0.5:
        return np.float32(math.sqrt(value))
    return value**exponent


@inlined
def _ftrl(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` -learning_rate_power, ``c[3]`` 2 x shrinkage, ``c[4]`` 2 x l2 (with beta), ``c[5]`` l1.

    Slots: accumulator, linear. The formula divides by the rate. As the rate approaches 0 so does the change of the
    weight, and at 0 nothing changes.
    """
    rate, decay, power, shrinkage, l2, l1 = c[0], c[1], c[2], c[3], c[4], c[5]
    if rate < FTRL_RATE_MIN:
        return
    weight = state[base : base + size]
    accumulator = state[base + stride : base + stride + size]
    linear = state[base + 2 * stride : base + 2 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        a = accumulator[i] + s
        root = _power(a, power)
        n = linear[i] + ((g + shrinkage * w) - (root - _power(accumulator[i], power)) / rate * w)
        accumulator[i] = a
        linear[i] = n
        weight[i] = (min(max(n, -l1), l1) - n) / (root / rate + l2)


@inlined
def _adadelta(
    state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats
) -> None:
    """``c[2]`` rho, ``c[3]`` 1 - rho, ``c[4]`` epsilon; slots: accumulated_grad, accumulated_delta_var."""
    rate, decay, rho, one_minus_rho, epsilon = c[0], c[1], c[2], c[3], c[4]
    weight = state[base : base + size]
    gradients = state[base + stride : base + stride + size]
    deltas = state[base + 2 * stride : base + 2 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        a = rho * gradients[i] + one_minus_rho * s
        gradients[i] = a
        root = math.sqrt(deltas[i] + epsilon)
        delta = -(root * g) / math.sqrt(a + epsilon)
        moved = (root * root * s) / (a + epsilon) if has_magnitudes else delta * delta
        deltas[i] = rho * deltas[i] + one_minus_rho * moved
        weight[i] = w + rate * delta


@inlined
def _adamax(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` 1 - beta_1, ``c[3]`` beta_2, ``c[4]`` epsilon, ``c[5]`` 1 - beta_1 ** t; slots: momentum, norm."""
    rate, decay, one_minus_beta_1, beta_2, epsilon, correction = c[0], c[1], c[2], c[3], c[4], c[5]
    weight = state[base : base + size]
    first = state[base + stride : base + stride + size]
    norm = state[base + 2 * stride : base + 2 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else abs(g)
        m = first[i] + (g - first[i]) * one_minus_beta_1
        u = max(beta_2 * norm[i], s)
        first[i] = m
        norm[i] = u
        weight[i] = w - (rate * m) / (correction * (u + epsilon))


@inlined
def _nadam(state: Floats, base: int, stride: int, size: int, gradient: Floats, magnitudes: Floats, c: Floats) -> None:
    """``c[2]`` 1 - beta_1, ``c[3]`` 1 - beta_2, ``c[4]`` epsilon.

    Of the momentum: ``c[5]`` the factor u of the next update, ``c[6]`` 1 - the product of all u up to that one.
    Of the gradient: ``c[7]`` 1 - u of this update, ``c[8]`` 1 - the product of all u up to this one.
    ``c[9]`` 1 - beta_2 ** t. Slots: momentum, velocity.
    """
    rate, decay, one_minus_beta_1, one_minus_beta_2, epsilon = c[0], c[1], c[2], c[3], c[4]
    weight = state[base : base + size]
    first = state[base + stride : base + stride + size]
    second = state[base + 2 * stride : base + 2 * stride + size]
    has_magnitudes = magnitudes.size > 0
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        s = magnitudes[i] if has_magnitudes else g * g
        m = first[i] + (g - first[i]) * one_minus_beta_1
        v = second[i] + (s - second[i]) * one_minus_beta_2
        first[i] = m
        second[i] = v
        m_hat = (c[5] * m) / c[6] + (c[7] * g) / c[8]
        weight[i] = w - (m_hat * rate) / (math.sqrt(v / c[9]) + epsilon)


@inlined
def _lion(state: Floats, base: int, stride: int, size: int, gradient: Floats, c: Floats) -> None:
    """``c[2]`` beta_1, ``c[3]`` 1 - beta_1, ``c[4]`` beta_2, ``c[5]`` 1 - beta_2; slot: momentum."""
    rate, decay, beta_1, one_minus_beta_1, beta_2, one_minus_beta_2 = c[0], c[1], c[2], c[3], c[4], c[5]
    weight = state[base : base + size]
    momentum = state[base + stride : base + stride + size]
    for i in range(size):
        w = weight[i] - weight[i] * decay * rate
        g = gradient[i]
        m = momentum[i]
        weight[i] = w - rate * np.sign(m * beta_1 + g * one_minus_beta_1)
        momentum[i] = m * beta_2 + g * one_minus_beta_2


@inlined
def _apply(
    formula: int,
    state: Floats,
    base: int,
    stride: int,
    size: int,
    gradient: Floats,
    magnitudes: Floats,
    c: Floats,
) -> None:
    if formula == SGD:
        _sgd(state, base, size, gradient, c)
    elif formula == MOMENTUM:
        _momentum(state, base, stride, size, gradient, c, False)
    elif formula == NESTEROV:
        _momentum(state, base, stride, size, gradient, c, True)
    elif formula == ADAGRAD:
        _adagrad(state, base, stride, size, gradient, magnitudes, c)
    elif formula == ADAM:
        _adam(state, base, stride, size, gradient, magnitudes, c)
    elif formula == AMSGRAD:
        _amsgrad(state, base, stride, size, gradient, magnitudes, c)
    elif formula == RMSPROP:
        _rmsprop(state, base, stride, size, gradient, magnitudes, c)
    elif formula == FTRL:
        _ftrl(state, base, stride, size, gradient, magnitudes, c)
    elif formula == ADADELTA:
        _adadelta(state, base, stride, size, gradient, magnitudes, c)
    elif formula == ADAMAX:
        _adamax(state, base, stride, size, gradient, magnitudes, c)
    elif formula == NADAM:
        _nadam(state, base, stride, size, gradient, magnitudes, c)
    else:
        _lion(state, base, stride, size, gradient, c)


@kernel(types.void, types.int64, FLOATS_OUT, types.int64, types.int64, types.int64, FLOATS, FLOATS, FLOATS)
def update_dense(
    formula: int,
    state: Floats,
    start: int,
    stop: int,
    stride: int,
    gradient: Floats,
    magnitudes: Floats,
    coefficients: Floats,
) -> None:
    """Move weights ``state[start:stop]`` by ``gradient[start:stop]``; slot k of a weight is ``k * stride`` further.

    ``magnitudes``: of these weights; without elements, the gradient says them.
    """
    _apply(formula, state, start, stride, stop - start, gradient[start:stop], magnitudes, coefficients)


@kernel(types.void, types.int64, FLOATS_OUT, types.int64, types.int64, INT64S, FLOATS, FLOATS, FLOATS)
def update_rows(
    formula: int,
    state: Floats,
    width: int,
    slab_width: int,
    row_indices: NDArray[np.int64],
    gradients: Floats,
    magnitudes: Floats,
    coefficients: Floats,
) -> None:
    """Move row ``row_indices[i]`` by ``gradients[i * width :]``; its slab starts at ``row_indices[i] * slab_width``.

    ``magnitudes``: as long as ``gradients``; without elements, the gradients say them.
    """
    count = row_indices.size
    magnitude = magnitudes[0:0]
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_floats(state, row_indices[i + _AHEAD] * slab_width, slab_width)
        gradient = gradients[i * width : (i + 1) * width]
        if magnitudes.size > 0:
            magnitude = magnitudes[i * width : (i + 1) * width]
        _apply(formula, state, row_indices[i] * slab_width, width, width, gradient, magnitude, coefficients)
