"""Warm start: the weights of another job's model as the initial values of a new one, matched by name.

The ledger, the optimizer's slots and its iteration stay behind: a new job trains its own plan from the beginning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.model.partitioning import DensePart
from elasticdl.shared.model.signature import DenseVariable, ModelSignature
from elasticdl.shared.names import JobId
from elasticdl.shared.wire.messages import Floats

_ROWS = 1 << 16
"""Rows that are copied at a time."""
_NAMES_MAX = 6
"""Names in a list for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The weights that a new model starts from.

    Attributes:
        job: the job that trained them.
        step: batches that it had trained.
        weights: all dense values of its model, and the rows that this ps needs.
        is_whole: every variable of the new model has to be in that model.
    """

    job: JobId
    step: int
    weights: ModelShard
    is_whole: bool = False

    def dense(self, signature: ModelSignature, part: DensePart, initial: Floats) -> Floats:
        """Initial dense values, with those of the other model where name and shape are the same.

        Args:
            signature: the new model.
            part: the part of it that is wanted.
            initial: the values that the model file gives to the part, float32, in the part's order.
        """
        flat = np.zeros(sum(variable.size for variable in signature.dense), np.float32)
        part.scatter(initial, flat)
        source, sources = self.weights.whole_dense(), _places(self.weights.signature.dense)
        taken = self._matching(signature)
        for name, place in _places(signature.dense).items():
            if name in sources and name in taken:
                flat[place] = source[sources[name]]
        return part.gather(flat)

    def load_rows(self, shard: ModelShard) -> None:
        """Copy the stored rows of tables with the same name and width, without those that are outside of the table."""
        sources = {store.table.name: store for store in self.weights.tables}
        for target in shard.tables:
            source = sources.get(target.table.name)
            if source is None or source.table.width != target.table.width:
                continue
            bound = target.table.input_dim or np.iinfo(np.int64).max
            for start in range(0, source.rows, _ROWS):
                ids, weights = source.stored_weights(start, start + _ROWS)
                legal = ids < bound
                target.load_weights(ids[legal], weights[legal])

    def problem(self, signature: ModelSignature) -> str:
        """Why the new model can't start from these weights; empty if it can."""
        matching = self._matching(signature)
        if self.is_whole and len(matching) < len(_shapes(signature)):
            return f"the model file does not fit the model of job {self.job}"
        return "" if matching else f"no variable of the model has the name and shape of one in job {self.job}"

    def note(self, signature: ModelSignature) -> str:
        """What the new model takes over and what it does not, for people."""
        wanted, there = _shapes(signature), _shapes(self.weights.signature)
        taken = self._matching(signature)
        different = [f"{name} {wanted[name]} (there {there[name]})" for name in wanted if name in there.keys() - taken]
        new = [name for name in wanted if name not in there]
        unused = [name for name in there if name not in wanted]
        text = f"Loaded {len(taken)} of {len(wanted)} variables from job {self.job} at step {self.step:,}."
        lists = (("Different shape", different), ("New in this model", new), ("Unused", unused))
        return text + "".join(f" {title}: {_list(names)}." for title, names in lists if names)

    def _matching(self, signature: ModelSignature) -> Set[str]:
        """Names of the variables and tables that both models have with the same shape."""
        there = _shapes(self.weights.signature)
        return {name for name, shape in _shapes(signature).items() if there.get(name) == shape}


def _shapes(signature: ModelSignature) -> Mapping[str, tuple[int, ...]]:
    """Name -> shape of each dense variable, and (width,) of each table."""
    shapes: dict[str, tuple[int, ...]] = {variable.name: variable.shape for variable in signature.dense}
    return shapes | {table.name: (table.width,) for table in signature.tables}


def _places(variables: Sequence[DenseVariable]) -> Mapping[str, slice]:
    """Name -> where the variable is in the flat vector over all variables."""

    def pairs() -> Iterator[tuple[str, slice]]:
        stops = accumulate(variable.size for variable in variables)
        for variable, stop in zip(variables, stops, strict=True):
            yield variable.name, slice(stop - variable.size, stop)

    return dict(pairs())


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMES_MAX])
    return f"{shown} and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else shown
