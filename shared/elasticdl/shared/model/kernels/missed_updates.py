"""What the updates do to a row in which its gradient was zero, many updates at a time.

A dense optimizer changes every row at every update: moments decay and go on moving the weights. A row store touches
only the rows with gradients, so a row catches up on the updates that it missed when it is read or touched.

A row that ``touched`` updates have been made up to has missed the updates ``touched .. touched + missed - 1``.
Every slot shrinks by a constant factor per update, so its value in each of them is known, and the movement is a sum.

Moments (Adam, AMSGrad, Adamax, Nadam) move a weight by

    sum over i = 1..missed of  c(i) * m * beta**i / (s * ratio**i + e(i))

where ``c`` holds learning rate and bias corrections, ``s`` is the root of the second moment or the norm, and ``e``
epsilon. The terms shrink by ``beta / ratio``, so the sum ends where they don't count any more. It is evaluated in
blocks, in each of which ``ratio**i`` is replaced by one number that makes the block's sum exact both for ``s`` far
above and far below ``e``.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numpy.typing import NDArray

from elasticdl.shared.model.kernels.compiled import (
    DOUBLES,
    FLOATS,
    FLOATS_OUT,
    INT64S,
    inlined,
    kernel,
    prefetch_floats,
)

FTRL_RATE_MIN = 1e-20
"""Least learning rate by which the formula of FTRL can divide without overflowing."""
DECAY_MAX = 0.999999
"""Share of a weight that decays in one update, at most: less than all of it, so that its logarithm is finite."""
STILL, MOMENTS, VELOCITY, SIGN, FTRL = range(5)
"""What moves the weights of a row without a gradient: nothing but weight decay, or its slots in one of four ways."""
PARAMETERS = 5
"""Length of the vector of parameters."""
SUMS, WITH_RATIO = 0, 1
"""Rows of ``powers``: sums of ``beta ** i`` and of ``(beta / ratio) ** i`` for i = 1..k at ``[k]``."""
FACTOR, EPSILON = 0, 1
"""Rows of ``corrections``, by update: what the rate is multiplied by, and epsilon; the last ones hold from there on."""
RATE, SUM_BEFORE = 0, 1
"""Rows of ``rates``, by run."""
POWERS = 1024
"""Updates for which ``slot_powers[slot]`` has the powers of the factor of a slot; others are computed."""

_AHEAD = 12
_RATE_CHANGE = 0.02
"""Weights that move and decay catch up in parts, in each of which the rate changes by no more than this share."""
_VELOCITY_ENDS = 12.0
"""A velocity has moved a weight by all but 1e-5 of its way after as many updates, divided by 1 - momentum."""
_FLAT = 1e-3
"""A coefficient that changes by less within a block counts as its mean."""
_LEAST = 1.1754944e-38
"""The least normal float32: TensorFlow makes a smaller momentum zero."""
_INT32S = types.Array(types.int32, 1, "C", readonly=True)
_MATRIX = types.Array(types.float64, 2, "C", readonly=True)

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]


@inlined
def _run_of(starts: Int64s, update: int) -> int:
    """The run of an update."""
    if starts.size == 1:
        return 0
    return int(np.searchsorted(starts, update, side="right")) - 1


@inlined
def _rates_until(starts: Int64s, rates: Doubles, update: int) -> float:
    """Sum of the rates of all updates before this one."""
    run = _run_of(starts, update)
    return float(rates[SUM_BEFORE, run] + (update - starts[run]) * rates[RATE, run])


@inlined
def _log_of_decay(decay: float, rate_sum: float, missed: int) -> float:
    """Logarithm of the factor by which weight decay shrinks a weight; exact for a constant rate."""
    if decay == 0.0 or rate_sum <= 0.0:
        return 0.0
    return missed * math.log1p(-min(decay * rate_sum / missed, DECAY_MAX))


@inlined
def _summed(
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    run: int,
    touched: int,
    begin: int,
    end: int,
    decayed: float,
) -> tuple[float, float, float]:
    """Sums over the terms of a block whose coefficients differ: alone, with the ratio, and times epsilon."""
    total, divided, epsilons = 0.0, 0.0, 0.0
    last = corrections.shape[1] - 1
    for i in range(begin, end):
        while run + 1 < starts.size and starts[run + 1] <= touched + i:
            run += 1
        at = min(touched + i, last)
        coefficient = rates[RATE, run] * corrections[FACTOR, at]
        if decayed != 0.0:
            coefficient *= math.exp(-decayed * (i + 1))
        term = coefficient * (powers[SUMS, i + 1] - powers[SUMS, i])
        total += term
        divided += coefficient * (powers[WITH_RATIO, i + 1] - powers[WITH_RATIO, i])
        epsilons += term * corrections[EPSILON, at]
    return total, divided, epsilons


@inlined
def _by_moments(
    state: Floats,
    base: int,
    width: int,
    p: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    touched: int,
    missed: int,
    decayed: float,
) -> None:
    """``p[1]`` place of the denominator in the slab, in widths; ``p[2]`` whether it is a square.

    The caller applies weight decay afterwards, to all movements: ``decayed`` is its logarithm per update.
    """
    weight = state[base : base + width]
    first = state[base + width : base + 2 * width]
    denominators = state[base + int(p[1]) * width : base + (int(p[1]) + 1) * width]
    last = corrections.shape[1] - 1
    run = _run_of(starts, touched)
    begin = 0
    for block in range(ends.size):
        if begin >= missed:
            break
        end = min(ends[block], missed)
        while run + 1 < starts.size and starts[run + 1] <= touched + begin:
            run += 1
        at_first = rates[RATE, run] * corrections[FACTOR, min(touched + begin, last)]
        at_last = rates[RATE, run] * corrections[FACTOR, min(touched + end - 1, last)]
        in_run = run + 1 == starts.size or starts[run + 1] >= touched + end
        is_flat = abs(at_last - at_first) <= _FLAT * abs(at_first) and -decayed * (end - begin) <= _FLAT
        if in_run and is_flat:
            mean = 0.5 * (at_first + at_last) * math.exp(-decayed * 0.5 * (begin + 1 + end))
            total = mean * (powers[SUMS, end] - powers[SUMS, begin])
            divided = mean * (powers[WITH_RATIO, end] - powers[WITH_RATIO, begin])
            epsilons = total * corrections[EPSILON, min(touched + begin, last)]
        else:
            total, divided, epsilons = _summed(powers, corrections, starts, rates, run, touched, begin, end, decayed)
        if divided > 0.0:
            step, ratio, epsilon = np.float32(total), np.float32(total / divided), np.float32(epsilons / total)
            if p[2] != 0.0:
                for i in range(width):
                    weight[i] -= first[i] * step / (math.sqrt(denominators[i]) * ratio + epsilon)
            else:
                for i in range(width):
                    weight[i] -= first[i] * step / (denominators[i] * ratio + epsilon)
        begin = end


@inlined
def _by_velocity(state: Floats, base: int, width: int, p: Doubles, missed: int, decayed: float) -> None:
    """``p[1]`` place of the velocity, ``p[2]`` momentum, ``p[3]`` factor of its sum; ``decayed`` as ``_by_moments``."""
    momentum = p[2] * math.exp(-decayed)
    total = float(missed) if momentum == 1.0 else momentum * (1.0 - momentum**missed) / (1.0 - momentum)
    factor = np.float32(p[3] * total)
    weight = state[base : base + width]
    velocity = state[base + int(p[1]) * width : base + (int(p[1]) + 1) * width]
    for i in range(width):
        weight[i] += factor * velocity[i]


@inlined
def _by_sign(
    state: Floats, base: int, width: int, p: Doubles, starts: Int64s, rates: Doubles, touched: int, missed: int
) -> None:
    """``p[1]`` factor of the momentum: each update moves a weight by the rate until its momentum is zero."""
    before = _rates_until(starts, rates, touched)
    decayed = _log_of_decay(p[0], _rates_until(starts, rates, touched + missed) - before, missed)
    for i in range(width):
        momentum = state[base + width + i]
        moved = 0.0
        if momentum != 0:
            steps = missed
            if p[1] < 1.0:
                steps = min(missed, max(1, int(math.log(abs(momentum) / _LEAST) / -math.log(p[1]))))
            moved = _rates_until(starts, rates, touched + steps) - before
            # What the first steps have moved shrinks, too.
            own = decayed * steps / missed
            if own < 0.0:
                moved *= math.expm1(own) / (steps * math.expm1(own / steps)) * math.exp(decayed - own)
        state[base + i] = np.float32(state[base + i] * math.exp(decayed) - math.copysign(moved, momentum))


@inlined
def _by_ftrl(state: Floats, base: int, width: int, p: Doubles, rate: float, missed: int) -> None:
    """``p[0]`` -learning_rate_power, ``p[1]`` 2 x shrinkage, ``p[2]`` 2 x l2, ``p[3]`` l1, ``p[4]`` beta.

    One update gives the weight that follows from the slots. Each further one adds the shrinkage of the weight to
    the slot, so the weight shrinks by a constant factor.
    """
    if rate < FTRL_RATE_MIN:
        return
    for i in range(width):
        divisor = state[base + width + i] ** p[0] / rate + p[2] + p[4] / rate
        linear = state[base + 2 * width + i] + p[1] * state[base + i]
        weight = (min(max(linear, -p[3]), p[3]) - linear) / divisor
        left = weight * max(0.0, 1.0 - p[1] / divisor) ** (missed - 1)
        state[base + 2 * width + i] = np.float32(linear + divisor * (weight - left))
        state[base + i] = np.float32(left)


@inlined
def _is_behind(motion: int, p: Doubles, touched: int, now: int) -> bool:
    """Whether updates that change a row are missing. Before its first gradient only weight decay and FTRL change it."""
    return now > touched and (touched > 0 or motion == FTRL or p[0] != 0.0)


@inlined
def _parts_but_last(
    motion: int,
    state: Floats,
    base: int,
    width: int,
    p: Doubles,
    slot_powers: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    touched: int,
    missed: int,
) -> int:
    """Make all parts of a slab but for the last one; returns how many updates these are."""
    made, moving = 0, missed if motion == VELOCITY else 0
    if motion == MOMENTS and ends.size:
        moving = min(missed, ends[ends.size - 1])
    elif p[2] < 1.0:
        moving = min(moving, int(_VELOCITY_ENDS / (1.0 - p[2])))
    end = touched + moving
    while True:
        run = _run_of(starts, touched)
        following = run + 1
        while (
            following < starts.size
            and starts[following] < end
            and abs(rates[RATE, following] - rates[RATE, run]) <= _RATE_CHANGE * rates[RATE, run]
        ):
            following += 1
        if following == starts.size or starts[following] >= end:
            return made
        part = starts[following] - touched
        decayed = _log_of_decay(
            p[0], _rates_until(starts, rates, touched + part) - _rates_until(starts, rates, touched), part
        )
        if motion == MOMENTS:
            _by_moments(state, base, width, p, ends, powers, corrections, starts, rates, touched, part, decayed / part)
        else:
            _by_velocity(state, base, width, p, part, decayed / part)
        factor = np.float32(math.exp(decayed))
        for i in range(width):
            state[base + i] *= factor
        for slot in range(slot_powers.shape[0]):
            factor = np.float32(slot_powers[slot, 1] ** part)
            at = base + (1 + slot) * width
            for i in range(width):
                state[at + i] *= factor
        touched += part
        made += part


@inlined
def _catch_up(
    motion: int,
    state: Floats,
    base: int,
    width: int,
    p: Doubles,
    slot_powers: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    touched: int,
    missed: int,
    with_slots: bool,
) -> None:
    """Make all missed updates of the slab at ``state[base:]``, or only of its weights."""
    if motion == FTRL:
        _by_ftrl(state, base, width, p, rates[RATE, _run_of(starts, touched + missed - 1)], missed)
        return
    if motion == SIGN:
        _by_sign(state, base, width, p, starts, rates, touched, missed)
    else:
        decayed = 0.0
        if p[0] != 0.0:
            rate_sum = _rates_until(starts, rates, touched + missed) - _rates_until(starts, rates, touched)
            decayed = _log_of_decay(p[0], rate_sum, missed)
        if motion == MOMENTS:
            _by_moments(
                state, base, width, p, ends, powers, corrections, starts, rates, touched, missed, decayed / missed
            )
        elif motion == VELOCITY:
            _by_velocity(state, base, width, p, missed, decayed / missed)
        if decayed != 0.0:
            factor = np.float32(math.exp(decayed))
            for i in range(width):
                state[base + i] *= factor
    if not with_slots:
        return
    last = slot_powers.shape[1] - 1
    for slot in range(slot_powers.shape[0]):
        if slot_powers[slot, 1] != 1.0:
            known = slot_powers[slot, min(missed, last)]
            factor = np.float32(known if missed <= last else slot_powers[slot, 1] ** missed)
            at = base + (1 + slot) * width
            for i in range(width):
                state[at + i] *= factor


_RULE = (types.int64, DOUBLES, _MATRIX, INT64S, _MATRIX, _MATRIX, INT64S, _MATRIX)


@kernel(types.void, *_RULE, FLOATS_OUT, INT64S, types.int64, types.int64, _INT32S)
def make_parts(
    motion: int,
    p: Doubles,
    slot_powers: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    state: Floats,
    row_indices: Int64s,
    width: int,
    slab_width: int,
    now: Int32s,
) -> None:
    """What ``catch_up`` and ``gather`` need before them where weights move and decay, and the rate has changed.

    What the slots have moved shrinks by the rates of the updates after that, so these must not be averaged. This brings
    row ``row_indices[i]`` to the beginning of the last part before ``now[i]`` in which rates are about the same, and
    its slab says so. Inside the other kernels it would cost them a part of their speed, used or not.
    """
    numbers = state.view(np.int32)
    for i in range(row_indices.size):
        base = row_indices[i] * slab_width
        touched = numbers[base + slab_width - 1]
        if _is_behind(motion, p, touched, now[i]):
            made = _parts_but_last(
                motion, state, base, width, p, slot_powers, ends, powers, corrections, starts, rates, touched,
                now[i] - touched,
            )  # fmt: skip
            numbers[base + slab_width - 1] = touched + made


@kernel(types.void, *_RULE, FLOATS_OUT, INT64S, types.int64, types.int64, _INT32S)
def catch_up(
    motion: int,
    p: Doubles,
    slot_powers: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    state: Floats,
    row_indices: Int64s,
    width: int,
    slab_width: int,
    now: Int32s,
) -> None:
    """Bring row ``row_indices[i]`` to ``now[i]`` updates; the last place of its slab says how many it has. It stays."""
    numbers = state.view(np.int32)
    count = row_indices.size
    for i in range(count):
        if i + _AHEAD < count:
            prefetch_floats(state, row_indices[i + _AHEAD] * slab_width, slab_width)
        base = row_indices[i] * slab_width
        touched = numbers[base + slab_width - 1]
        if _is_behind(motion, p, touched, now[i]):
            _catch_up(
                motion, state, base, width, p, slot_powers, ends, powers, corrections, starts, rates, touched,
                now[i] - touched, True,
            )  # fmt: skip


@kernel(types.void, *_RULE, FLOATS, INT64S, types.int64, types.int64, _INT32S, FLOATS_OUT)
def gather(
    motion: int,
    p: Doubles,
    slot_powers: Doubles,
    ends: Int64s,
    powers: Doubles,
    corrections: Doubles,
    starts: Int64s,
    rates: Doubles,
    state: Floats,
    row_indices: Int64s,
    width: int,
    slab_width: int,
    now: Int32s,
    out: Floats,
) -> None:
    """Copy the weights of row ``row_indices[i]`` after ``now[i]`` updates; a negative one leaves its place as it is."""
    numbers = state.view(np.int32)
    count = row_indices.size
    slab = np.empty(slab_width, np.float32)
    for i in range(count):
        if i + _AHEAD < count and row_indices[i + _AHEAD] >= 0:
            prefetch_floats(state, row_indices[i + _AHEAD] * slab_width, slab_width)
        if row_indices[i] < 0:
            continue
        base = row_indices[i] * slab_width
        touched = numbers[base + slab_width - 1]
        if not _is_behind(motion, p, touched, now[i]):
            out[i * width : (i + 1) * width] = state[base : base + width]
            continue
        slab[:] = state[base : base + slab_width]
        _catch_up(
            motion, slab, 0, width, p, slot_powers, ends, powers, corrections, starts, rates, touched,
            now[i] - touched, False,
        )  # fmt: skip
        out[i * width : (i + 1) * width] = slab[:width]
