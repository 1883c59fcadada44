"""Keras' built-in learning-rate schedules, evaluated without Keras: float32 arithmetic in Keras' order of operations.

A schedule is a function of the number of optimizer updates made before (Keras' ``iterations``).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from elasticdl.shared.errors import UserError
from elasticdl.shared.model.signature import Optimizer

Schedule = Callable[[int], float]
"""Learning rate at an iteration."""

_ONE = np.float32(1)


def schedule_of(optimizer: Optimizer) -> Schedule:
    """The learning rate of an optimizer as a function of the iteration."""
    if not optimizer.schedule:
        rate = float(optimizer.learning_rate)
        return lambda _: rate
    build = SCHEDULES.get(optimizer.schedule)
    if build is None:
        raise UserError(
            f"learning-rate schedule {optimizer.schedule!r} is not built in",
            hint=f"Use one of {', '.join(SCHEDULES)}; a schedule of your own is evaluated by the workers.",
        )
    config = {name: value for name, value in optimizer.schedule_config.items() if name != "name"}
    try:
        inspect.signature(build).bind(**config)
        schedule = build(**config)
        schedule(0)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"learning-rate schedule {optimizer.schedule!r}: {error}") from error
    return schedule


def _positive(name: str, steps: float) -> np.float32:
    if steps <= 0:
        raise UserError(f"learning-rate schedule: {name}={steps} must be greater than 0")
    return np.float32(steps)


def _periods(decay_steps: float, staircase: bool) -> Callable[[int], np.float32]:
    steps = _positive("decay_steps", decay_steps)

    def periods(iteration: int) -> np.float32:
        passed = np.float32(iteration) / steps
        return np.float32(np.floor(passed)) if staircase else passed

    return periods


def exponential_decay(
    initial_learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """``initial * decay_rate ** (iteration / decay_steps)``."""
    initial, base = np.float32(initial_learning_rate), np.float32(decay_rate)
    periods = _periods(decay_steps, staircase)
    return lambda iteration: float(initial * base ** periods(iteration))


def inverse_time_decay(
    initial_learning_rate: float, decay_steps: float, decay_rate: float, staircase: bool = False
) -> Schedule:
    """``initial / (1 + decay_rate * iteration / decay_steps)``."""
    initial, factor = np.float32(initial_learning_rate), np.float32(decay_rate)
    periods = _periods(decay_steps, staircase)
    return lambda iteration: float(initial / (_ONE + factor * periods(iteration)))


def piecewise_constant_decay(boundaries: Sequence[float], values: Sequence[float]) -> Schedule:
    """``values[i]`` up to and including iteration ``boundaries[i]``, the last value afterwards."""
    if not boundaries or len(boundaries) != len(values) - 1:
        raise UserError(
            f"learning-rate schedule: {len(boundaries)} boundaries need {len(boundaries) + 1} values, not {len(values)}"
        )
    # Keras casts the boundaries to the integer type of the iteration.
    limits = [int(boundary) for boundary in boundaries]

    def rate(iteration: int) -> float:
        return float(np.float32(values[sum(iteration > limit for limit in limits)]))

    return rate


def polynomial_decay(
    initial_learning_rate: float,
    decay_steps: float,
    end_learning_rate: float = 0.0001,
    power: float = 1.0,
    cycle: bool = False,
) -> Schedule:
    """From ``initial`` to ``end`` in ``decay_steps`` as ``(1 - progress) ** power``; ``cycle`` repeats."""
    initial, end = np.float32(initial_learning_rate), np.float32(end_learning_rate)
    steps, exponent = _positive("decay_steps", decay_steps), np.float32(power)

    def rate(iteration: int) -> float:
        position, length = np.float32(iteration), steps
        if cycle:
            length = steps * (np.ceil(position / steps) if iteration else _ONE)
        else:
            position = min(position, steps)
        return float((initial - end) * (_ONE - position / length) ** exponent + end)

    return rate


def cosine_decay(
    initial_learning_rate: float,
    decay_steps: float,
    alpha: float = 0.0,
    warmup_target: float | None = None,
    warmup_steps: float = 0,
) -> Schedule:
    """Linear warm-up to ``warmup_target`` if any, then half a cosine down to ``alpha`` of the peak."""
    initial, steps, warmup = (
        np.float32(initial_learning_rate),
        _positive("decay_steps", decay_steps),
        np.float32(warmup_steps),
    )
    floor = np.float32(alpha)

    def decayed(peak: np.float32, position: np.float32) -> float:
        cosine = np.float32(0.5) * (_ONE + np.cos(np.float32(math.pi) * (position / steps)))
        return float(peak * (np.float32(1 - alpha) * cosine + floor))

    def rate(iteration: int) -> float:
        position = np.float32(iteration)
        if warmup_target is None:
            return decayed(initial, min(position, steps))
        target = np.float32(warmup_target)
        position = min(position, steps + warmup)
        if position < warmup:
            return float((target - initial) * (position / warmup) + initial)
        return decayed(target, position - warmup)

    return rate


def cosine_decay_restarts(
    initial_learning_rate: float, first_decay_steps: float, t_mul: float = 2.0, m_mul: float = 1.0, alpha: float = 0.0
) -> Schedule:
    """Half cosines, each ``t_mul`` times as long and ``m_mul`` times as high as the one before (SGDR, 2016)."""
    initial, steps = np.float32(initial_learning_rate), _positive("first_decay_steps", first_decay_steps)
    stretch, scale, floor = np.float32(t_mul), np.float32(m_mul), np.float32(alpha)

    def rate(iteration: int) -> float:
        progress = np.float32(iteration) / steps
        if stretch == _ONE:
            restarts = np.floor(progress)
            progress = progress - restarts
        else:
            restarts = np.floor(np.log(_ONE - progress * (_ONE - stretch)) / np.log(stretch))
            power = stretch**restarts
            progress = (progress - (_ONE - power) / (_ONE - stretch)) / power
        cosine = np.float32(0.5) * scale**restarts * (_ONE + np.cos(np.float32(math.pi) * progress))
        return float(initial * ((_ONE - floor) * cosine + floor))

    return rate


SCHEDULES: Mapping[str, Callable[..., Schedule]] = MappingProxyType(
    {
        "ExponentialDecay": exponential_decay,
        "PiecewiseConstantDecay": piecewise_constant_decay,
        "PolynomialDecay": polynomial_decay,
        "InverseTimeDecay": inverse_time_decay,
        "CosineDecay": cosine_decay,
        "CosineDecayRestarts": cosine_decay_restarts,
    }
)
"""Every built-in schedule by Keras' class name; a builder's parameters are Keras' configuration."""
