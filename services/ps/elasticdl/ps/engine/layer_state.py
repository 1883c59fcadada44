"""How the statistics that a ps holds change: the rule of each variable, laid out over their flat buffer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from elasticdl.ps.engine.checks import NotFiniteError, check_array
from elasticdl.shared.model.partitioning import Block
from elasticdl.shared.model.signature import DenseVariable, StateUpdate

Floats = NDArray[np.float32]


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
        for variable, place in self._places:
            match variable.state.update:
                case StateUpdate.MAXIMUM:
                    np.maximum(values[place], update[place], out=after[place])
                case StateUpdate.MINIMUM:
                    np.minimum(values[place], update[place], out=after[place])
                case _:
                    pass
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
