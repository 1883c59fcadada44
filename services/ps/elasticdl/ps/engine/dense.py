"""The dense blocks that a ps holds: trainable ones with optimizer slots, statistics, frozen ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.checks import NotFiniteError, check_array, check_finite
from elasticdl.ps.engine.kernels import formulas
from elasticdl.ps.engine.kernels.predictions import predict
from elasticdl.ps.engine.optimizers import Update, rule_of
from elasticdl.ps.engine.updater import Updater
from elasticdl.shared.errors import InvariantError, ProtocolError, UserError
from elasticdl.shared.model.partitioning import Block
from elasticdl.shared.model.signature import (
    EMA_MOMENTUM,
    EMA_OVERWRITE_FREQUENCY,
    DenseVariable,
    Optimizer,
    StateUpdate,
    VariableKind,
)

Floats = NDArray[np.float32]
_Facts = TypeVar("_Facts")


class LayerState:
    """The rules of some blocks of statistics, in the order in which a flat buffer holds them.

    Attributes:
        averaged: bool[size], elements whose updates in one round of synchronous training are averaged, so they move
            once: moving averages and assignments. The order of batches does not matter to the other rules.
    """

    def __init__(self, variables: Sequence[DenseVariable], blocks: Sequence[Block]) -> None:
        stops = np.cumsum([0, *(block.size for block in blocks)])
        self.size = int(stops[-1])
        self._places = [
            (variables[block.variable], slice(start, start + block.size))
            for block, start in zip(blocks, stops[:-1].tolist(), strict=True)
        ]
        self._bounded = [
            place for place in self._places if place[0].state.update in (StateUpdate.MAXIMUM, StateUpdate.MINIMUM)
        ]
        self._kept = np.zeros(self.size, np.float32)
        """The share of the old value that is part of the new one."""
        self.averaged = np.zeros(self.size, np.bool_)
        self._low = np.full(self.size, np.finfo(np.float32).min, np.float32)
        self._high = np.full(self.size, np.finfo(np.float32).max, np.float32)
        for variable, place in self._places:
            rule = variable.state
            self._kept[place] = rule.kept
            self.averaged[place] = rule.update in (StateUpdate.MOVING_AVERAGE, StateUpdate.ASSIGN)
            if rule.low is not None:
                self._low[place] = rule.low
            if rule.high is not None:
                self._high[place] = rule.high

    def check(self, values: Floats, update: Floats) -> None:
        """Refuse an update that can't be applied; ``values`` and ``update`` are float32[size].

        Raises:
            NotFiniteError: a new value would be NaN, infinite or out of its variable's range; it names the variable.
        """
        check_array("layer state", update, np.float32, (self.size,))
        after = self.after(values, update)
        legal = (self._low <= after) & (after <= self._high)
        if legal.all():
            return
        raise NotFiniteError(
            "; ".join(
                _complaint(variable, after[place][~legal[place]])
                for variable, place in self._places
                if not legal[place].all()
            )
        )

    def after(self, values: Floats, update: Floats) -> Floats:
        """The values that ``values`` become, float32[size]."""
        with np.errstate(over="ignore", invalid="ignore"):
            after: Floats = self._kept * values + update
        for variable, place in self._bounded:
            choose = np.maximum if variable.state.update is StateUpdate.MAXIMUM else np.minimum
            choose(values[place], update[place], out=after[place])
        return after


def _complaint(variable: DenseVariable, illegal: Floats) -> str:
    rule, count = variable.state, f"{illegal.size} of its values"
    if not np.isfinite(illegal).all():
        return f"layer state {variable.name}: {count} would be NaN or infinite"
    bounds = (
        f"between {rule.low:,.0f} and {rule.high:,.0f}"
        if rule.low is not None and rule.high is not None
        else (f"at least {rule.low:g}" if rule.low is not None else f"at most {rule.high:g}")
    )
    return f"layer state {variable.name}: {count} would be out of range (one is {illegal[0]:g}, must be {bounds})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseCut:
    """The dense state at one moment, a copy: read it from any thread, for as long as wanted.

    Attributes:
        state: float32[1 + slots, trainable], weights first, then each slot, then the averages if there are any.
        fixed: float32[statistics + frozen].
    """

    state: Floats
    fixed: Floats
    has_averages: bool = False

    def pull(self, out: Floats, *, averages: bool = False) -> None:
        """``DenseStore.pull`` as of the cut."""
        trainable = self.state.shape[1]
        out[:trainable] = self.state[-1 if averages and self.has_averages else 0]
        out[trainable:] = self.fixed


class DenseStore:
    """Flat float32 buffers over blocks of dense variables.

    The flat order of values is: trainable blocks, statistics, frozen ones, each in the order in which ``blocks`` names
    them; ``layout`` lists them. Belongs to one thread; a ``DenseCut`` is independent of it.

    Methods raise ``ProtocolError`` for a wrong shape or dtype, and ``NotFiniteError`` for values with NaN or infinity.

    Args:
        optimizer: how a push moves trainable blocks.
        blocks: what this ps holds; all of every variable when None.
        updater: applies an optimizer that Keras runs; None: it can't be applied here, only read.
        rate_scale: see ``Updater.update``.

    Raises:
        ProtocolError: a block outside of its variable, or two that overlap.
    """

    def __init__(
        self,
        variables: Sequence[DenseVariable],
        optimizer: Optimizer,
        blocks: Sequence[Block] | None = None,
        *,
        updater: Updater | None = None,
        rate_scale: float = 1.0,
    ) -> None:
        if blocks is None:
            blocks = [Block(number, 0, variable.size) for number, variable in enumerate(variables) if variable.size]
        _check_blocks(variables, blocks)
        by_kind = {kind: [b for b in blocks if variables[b.variable].kind is kind] for kind in VariableKind}
        sizes = {kind: sum(block.size for block in held) for kind, held in by_kind.items()}
        self.layout = tuple(block for held in by_kind.values() for block in held)
        """Blocks in the flat order of values."""
        self.trainable = sizes[VariableKind.TRAINABLE]
        """Elements that gradients move."""
        self.gathered = sum(
            block.size for block in by_kind[VariableKind.TRAINABLE] if variables[block.variable].gathered
        )
        """Elements whose magnitudes follow the gradient in a push."""
        self.statistics = sizes[VariableKind.STATISTIC]
        """Elements of layer state."""
        self.size = sum(sizes.values())
        """Elements altogether."""
        self._layer_state = LayerState(variables, by_kind[VariableKind.STATISTIC])
        self._rule = rule_of(optimizer)
        self._updater, self._rate_scale, self._kept = updater, rate_scale, optimizer.kept
        self._version = object()
        """Another one when weights or slots are replaced."""
        self._moved = tuple(
            _ranges(variables, by_kind[VariableKind.TRAINABLE], lambda one: (one.weight_decay, one.gathered))
        )
        self._average = _average_of(optimizer)
        self._nonnegative = tuple(_ranges(variables, by_kind[VariableKind.TRAINABLE], lambda one: one.nonnegative))
        averages = [0.0] * (self._average is not None)
        # What Keras' optimizers keep fills whole rows, too, so that the state has one shape.
        kept_rows = [0.0] * -(-self._kept // max(self.trainable, 1))
        initial = np.array([0.0, *(slot.initial for slot in self._rule.slots), *kept_rows, *averages], np.float32)
        self._state = np.repeat(initial[:, None], self.trainable, axis=1)
        self._fixed = np.zeros(self.size - self.trainable, np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return self._state.nbytes + self._fixed.nbytes

    def pull(self, out: Floats, *, averages: bool = False) -> None:
        """Write all values into ``out`` float32[size], in the order of ``layout``.

        Args:
            averages: write the averages of trainable values instead, if the optimizer keeps averages.
        """
        check_array("dense: values", out, np.float32, (self.size,))
        out[: self.trainable] = self._state[-1 if averages and self._average else 0]
        out[self.trainable :] = self._fixed

    def predict(self, out: Floats, update: Update, updates: int) -> None:
        """``pull`` with the trainable values that are expected after ``updates`` more updates like ``update``.

        Layer state is given as it is: what a batch contributes to it is a difference to what was pulled.
        """
        self.pull(out)
        expected = self._rule.expected and self._rule.expected(update)
        if not expected:
            return
        weights, slots = self._state[0], self._state[1:]
        factor, moved = expected.factor * updates, out[: self.trainable]
        predict(expected.kind, weights, slots[expected.momentum], slots[expected.norm], factor, expected.epsilon, moved)
        self._constrain(out)

    def set(self, values: Floats) -> None:
        """Set all values, float32[size]; slots start again."""
        check_array("dense: values", values, np.float32, (self.size,))
        check_finite("dense: values", values)
        self._state[0] = values[: self.trainable]
        for row, slot in zip(self._state[1:], self._rule.slots, strict=False):
            row[:] = slot.initial
        if self._average:
            self._state[-1] = self._state[0]  # Until the first update, which begins the averages.
        if self._updater:
            self._kept_floats[:] = self._updater.initial
        self._version = object()
        self._fixed[:] = values[self.trainable :]

    @property
    def slots(self) -> Floats:
        """What the optimizer keeps of trainable values, float32[slots, trainable], averages last; a view."""
        return self._state[1:]

    def check(self, gradient: Floats) -> None:
        """Refuse a gradient, float32[trainable + gathered], that can't be applied."""
        check_array("dense: gradient", gradient, np.float32, (self.trainable + self.gathered,))
        check_finite("dense: gradient", gradient)

    def push(self, gradient: Floats, update: Update) -> None:
        """Apply the optimizer with ``gradient`` float32[trainable + gathered], as checked; the magnitudes come last."""
        if self._kept:
            self._push_by_keras(gradient[: self.trainable], update)
            return
        state, magnitudes = self._state.reshape(-1), gradient[self.trainable :]
        for start, stop, (decays, is_gathered) in self._moved:
            own = magnitudes[: stop - start if is_gathered else 0]
            magnitudes = magnitudes[own.size :]
            coefficients = self._rule.coefficients(update, decay=decays)
            formulas.update_dense(self._rule.formula, state, start, stop, self.trainable, gradient, own, coefficients)
        # In Keras' order: averages follow the formula's results, and constraints come last.
        if self._average:
            self._average.move(self._state[-1], self._state[0], update.iteration)
        self._constrain(self._state[0])

    def _push_by_keras(self, gradient: Floats, update: Update) -> None:
        """Keras applies constraints itself."""
        if self._updater is None:
            raise InvariantError("an optimizer that Keras runs is applied without Keras")
        weights, kept = self._state[0], self._kept_floats
        self._updater.update(weights, kept, gradient, rate=update.rate, scale=self._rate_scale, version=self._version)
        if self._average:
            self._average.move(self._state[-1], weights, update.iteration)
            if self._average.overwrite_every:
                self._version = object()

    @property
    def _kept_floats(self) -> Floats:
        return self._state[1:].reshape(-1)[: self._kept]

    def _constrain(self, weights: Floats) -> None:
        for start, stop, is_nonnegative in self._nonnegative:
            if is_nonnegative:
                np.maximum(weights[start:stop], 0, out=weights[start:stop])

    def check_statistics(self, update: Floats) -> None:
        """Refuse an update float32[statistics] of layer state that can't be applied.

        Raises:
            NotFiniteError: a new value would be NaN, infinite or out of its range, for example a negative variance.
        """
        self._layer_state.check(self._fixed[: self.statistics], update)

    def update_statistics(self, update: Floats, *, averaged: bool | None = None) -> None:
        """Apply ``update`` float32[statistics], as checked; no optimizer is involved.

        Args:
            averaged: only to elements that synchronous training averages, or only to the others; None: to all.
        """
        values = self._fixed[: self.statistics]
        chosen = True if averaged is None else self._layer_state.averaged == averaged
        if np.any(chosen):
            np.copyto(values, self._layer_state.after(values, update), where=chosen)

    def cut(self) -> DenseCut:
        """A copy of everything: dense state is small beside rows, and changes as a whole at every push anyway."""
        has_averages = self._average is not None
        return DenseCut(state=self._state.copy(), fixed=self._fixed.copy(), has_averages=has_averages)

    def load(self, cut: DenseCut) -> None:
        """Take over the state of a cut of an equal store."""
        check_array("dense: state", cut.state, np.float32, self._state.shape)
        check_array("dense: fixed values", cut.fixed, np.float32, self._fixed.shape)
        self._state[:] = cut.state
        self._version = object()
        self._fixed[:] = cut.fixed


def _check_blocks(variables: Sequence[DenseVariable], blocks: Sequence[Block]) -> None:
    free_from = 0
    previous = -1
    for block in sorted(blocks, key=lambda held: (held.variable, held.start)):
        if block.variable >= len(variables) or block.stop > variables[block.variable].size:
            raise ProtocolError(f"dense: {block} lies outside of its variable")
        if block.variable == previous and block.start < free_from:
            raise ProtocolError(f"dense: {block} overlaps another block of {variables[block.variable].name!r}")
        previous, free_from = block.variable, block.stop


def _ranges(
    variables: Sequence[DenseVariable], blocks: Sequence[Block], applies: Callable[[DenseVariable], _Facts]
) -> Iterator[tuple[int, int, _Facts]]:
    """Maximal flat ranges (start, stop, what applies) of trainable blocks."""
    start = stop = 0
    for number, block in enumerate(blocks):
        here = applies(variables[block.variable])
        stop += block.size
        if number + 1 == len(blocks) or applies(variables[blocks[number + 1].variable]) != here:
            yield start, stop, here
            start = stop


@dataclass(frozen=True, slots=True)
class _MovingAverage:
    """How averages of the weights follow them: Keras' ``use_ema``, an exponential moving average over the updates.

    Attributes:
        momentum: share of the old average that stays.
        overwrite_every: updates after which the weights become the averages; 0: never while training.
    """

    momentum: float
    overwrite_every: int

    def move(self, averages: Floats, weights: Floats, iteration: int) -> None:
        """Take in the weights after an update, as ``keras.optimizers.Optimizer`` does.

        Args:
            averages: float32[n], changed.
            weights: float32[n]; changed if the averages overwrite them.
            iteration: updates before this one. The first one begins the averages.
        """
        momentum = np.float32(self.momentum if iteration else 0.0)
        averages *= momentum
        averages += (np.float32(1) - momentum) * weights
        if self.overwrite_every and (iteration + 1) % self.overwrite_every == 0:
            weights[:] = averages


def _average_of(optimizer: Optimizer) -> _MovingAverage | None:
    """How an optimizer averages the weights; None: not at all."""
    momentum = optimizer.hyperparameters.get(EMA_MOMENTUM)
    if momentum is None:
        return None
    every = optimizer.hyperparameters.get(EMA_OVERWRITE_FREQUENCY, 0)
    if not 0 <= momentum <= 1 or every < 0:
        raise UserError(f"optimizer {optimizer.name!r}: {EMA_MOMENTUM}={momentum}, {EMA_OVERWRITE_FREQUENCY}={every}")
    return _MovingAverage(float(momentum), int(every))
