"""Rows catch up on the updates in which they had no gradient, so that a table trains as a dense embedding does.

``ZeroGradient`` is what an optimizer does to a weight whose gradient is zero; ``zero_gradients`` has it for each
optimizer. The kernels make many such updates at once, see ``kernels.missed_updates``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.model.kernels import missed_updates as kernels
from elasticdl.shared.model.rows.timeline import RateHistory

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]
Updates = NDArray[np.int32]

_TAIL = 1e-5
"""Share of the movement that is left out at the end of the sum."""
_TERMS_MAX = 4096
_BLOCK_CHANGE = 0.01
"""By how much the denominator changes in a block, at most."""
_SETTLED = 1e-7
_SETTLED_MAX = 1 << 18
"""Updates after which bias corrections count as settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """A decaying first moment continues to move the weight.

    Attributes:
        beta: factor of the first moment per update; it is the first slot.
        ratio: factor of the denominator per update.
        slot: number of the slot that the denominator is made of.
        is_square: whether the denominator is the root of that slot.
        correction: (updates before, float64[n]) -> by what the rate is multiplied.
        epsilon: (updates before, float64[n]) -> what is added to the denominator.
    """

    beta: float
    ratio: float
    slot: int = 1
    is_square: bool = True
    correction: Callable[[Doubles], Doubles]
    epsilon: Callable[[Doubles], Doubles]


@dataclass(frozen=True, slots=True, kw_only=True)
class Velocity:
    """A decaying velocity, which contains the rate, continues to move the weight.

    Attributes:
        momentum: its factor per update.
        factor: what the weight moves by, per velocity after the update.
    """

    momentum: float
    slot: int = 0
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """The sign of a decaying momentum moves the weight by the rate; ``beta``: factor of the momentum per update."""

    beta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowTheLeader:
    """The weight is a function of the slots and the rate.

    Attributes:
        power: -learning_rate_power.
        shrinkage: twice the L2 shrinkage.
        l2: twice the L2 regularisation.
        l1: the L1 regularisation.
    """

    power: float
    shrinkage: float
    l2: float
    l1: float
    beta: float


Motion = Moments | Velocity | Sign | FollowTheLeader


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroGradient:
    """What an optimizer does to a weight whose gradient is zero, in one update.

    Attributes:
        motion: how the slots move the weight; None: they don't.
        weight_decay: decoupled decay, before the rate.
    """

    slot_factors: tuple[float, ...] = ()
    motion: Motion | None = None
    weight_decay: float = 0.0

    @property
    def changes_nothing(self) -> bool:
        """Whether a row is the same after any number of updates."""
        return self.motion is None and not self.weight_decay and all(factor == 1 for factor in self.slot_factors)


class MissedUpdates:
    """The updates that rows of a table have missed."""

    def __init__(self, rule: ZeroGradient, width: int, rates: RateHistory) -> None:
        self._rule = rule
        self._width = width
        self.slab_width = width * (1 + len(rule.slot_factors)) + 1
        """Weights, slots, and how many updates a row is up to, int32; 0: none has touched it."""
        self._rates = rates
        self._tables = _tables_of(rule)

    def make(self, state: Floats, row_indices: Ids, now: Updates) -> None:
        """Bring the slabs of ``row_indices`` int64[n] in the flat ``state`` to ``now`` int32[n] updates.

        The caller says in the slabs afterwards how many updates these are up to.
        """
        if self._is_in_parts:
            kernels.make_parts(*self._tables.arguments, *self._history(), state, row_indices, *self._widths, now)
        kernels.catch_up(*self._tables.arguments, *self._history(), state, row_indices, *self._widths, now)

    def gather(self, state: Floats, row_indices: Ids, now: Updates, out: Floats) -> None:
        """Copy the weights that rows have after ``now`` int32[n] updates into the flat ``out``.

        Negative row indices leave their places as they are.
        """
        if self._is_in_parts:
            rows = np.flatnonzero(row_indices >= 0)
            copies = state.reshape(-1, self.slab_width)[row_indices[rows]].reshape(-1)
            state, row_indices = copies, np.full(row_indices.size, -1)
            row_indices[rows] = np.arange(rows.size)
            arguments = *self._tables.arguments, *self._history(), state, np.arange(rows.size), *self._widths, now[rows]
            kernels.make_parts(*arguments)
        kernels.gather(*self._tables.arguments, *self._history(), state, row_indices, *self._widths, now, out)

    @property
    def moves_untouched(self) -> bool:
        """Whether rows change that have never had a gradient."""
        return bool(self._rule.weight_decay) or isinstance(self._rule.motion, FollowTheLeader)

    def untouched(self, now: Updates) -> Floats:
        """float32[n]: by what the initial weights of a row that was never touched are multiplied by ``now`` updates."""
        updates, inverse = np.unique(np.maximum(now, 0), return_inverse=True)
        sums = self._rates.arrays.sum_until(updates)
        if isinstance(self._rule.motion, FollowTheLeader):
            # FTRL replaces a weight by what its slots say, and these say nothing yet.
            return np.where(sums > 0, np.float32(0), np.float32(1))[inverse]
        means = sums / np.maximum(updates, 1)
        factors = np.exp(updates * np.log1p(-np.minimum(self._rule.weight_decay * means, kernels.DECAY_MAX)))
        untouched: Floats = factors.astype(np.float32)[inverse]
        return untouched

    @property
    def _is_in_parts(self) -> bool:
        """Whether weights move and decay, and the rate has changed."""
        moves = isinstance(self._rule.motion, Moments | Velocity)
        return moves and self._rule.weight_decay != 0 and self._rates.arrays.starts.size > 1

    @property
    def _widths(self) -> tuple[int, int]:
        return self._width, self.slab_width

    def _history(self) -> tuple[Ids, Doubles]:
        history = self._rates.arrays
        return history.starts, history.rates


@dataclass(frozen=True, slots=True)
class _Tables:
    """What the kernels know of a rule."""

    motion: int
    parameters: Doubles
    slot_powers: Doubles
    ends: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    powers: Doubles = field(default_factory=lambda: np.zeros((2, 1)))
    corrections: Doubles = field(default_factory=lambda: np.zeros((2, 1)))

    @property
    def arguments(self) -> tuple[int, Doubles, Doubles, Ids, Doubles, Doubles]:
        return self.motion, self.parameters, self.slot_powers, self.ends, self.powers, self.corrections


def _tables_of(rule: ZeroGradient) -> _Tables:
    motion = rule.motion
    slot_powers = np.array(rule.slot_factors, np.float64).reshape(-1, 1) ** np.arange(kernels.POWERS)

    def parameters(*values: float) -> Doubles:
        vector = np.zeros(kernels.PARAMETERS, np.float64)
        vector[: len(values)] = values
        return vector

    if isinstance(motion, Moments):
        own = parameters(rule.weight_decay, 1 + motion.slot, motion.is_square)
        slowest = max((factor for factor in rule.slot_factors if factor < 1), default=0.0)
        return _Tables(kernels.MOMENTS, own, slot_powers, *_series(motion), _corrections(motion, slowest))
    if isinstance(motion, Velocity):
        own = parameters(rule.weight_decay, 1 + motion.slot, motion.momentum, motion.factor)
        return _Tables(kernels.VELOCITY, own, slot_powers)
    if isinstance(motion, Sign):
        return _Tables(kernels.SIGN, parameters(rule.weight_decay, motion.beta), slot_powers)
    if isinstance(motion, FollowTheLeader):
        own = parameters(motion.power, motion.shrinkage, motion.l2, motion.l1, motion.beta)
        return _Tables(kernels.FTRL, own, slot_powers)
    return _Tables(kernels.STILL, parameters(rule.weight_decay), slot_powers)


def _series(motion: Moments) -> tuple[Ids, Doubles]:
    """Ends of the blocks, and sums of powers, of as many terms as count."""
    quotient = motion.beta / motion.ratio if motion.ratio else 1.0
    if motion.beta == 0:
        terms = 0
    elif quotient >= 1:
        terms = _TERMS_MAX
    else:
        terms = min(_TERMS_MAX, math.ceil(math.log(_TAIL) / math.log(quotient)))
    block = max(1, int(_BLOCK_CHANGE / (1 - motion.ratio))) if motion.ratio < 1 else max(1, terms)
    exponents = np.arange(1, terms + 1)
    powers = np.zeros((2, terms + 1))
    np.cumsum(motion.beta**exponents, out=powers[kernels.SUMS, 1:])
    np.cumsum(np.minimum(quotient**exponents, 1e30), out=powers[kernels.WITH_RATIO, 1:])
    return np.minimum(np.arange(block, terms + block, block, dtype=np.int64), terms), powers


def _corrections(motion: Moments, slowest: float) -> Doubles:
    """Corrections until they have settled: until the slowest moment has forgotten its beginning."""
    updates = math.ceil(math.log(_SETTLED) / math.log(slowest)) if slowest else 0
    before = np.arange(min(updates, _SETTLED_MAX) + 2, dtype=np.float64)
    return np.stack([motion.correction(before), motion.epsilon(before)])
