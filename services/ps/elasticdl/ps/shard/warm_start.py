"""Warm start: the weights of a trained model as the initial values of a new one, matched by name.

Of another job, the ledger stays behind: a new job trains its own plan from the beginning. So do the optimizer's slots
and its iteration, unless ``InitialModel.has_optimizer`` asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from elasticdl.ps.engine.dense import DenseStore
from elasticdl.ps.shard.group import Group
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.job.spec import InitialModel
from elasticdl.shared.model.matching import Match
from elasticdl.shared.model.partitioning import DensePart
from elasticdl.shared.model.signature import DenseVariable, ModelSignature, VariableKind
from elasticdl.shared.wire.messages import Floats

_ROWS = 1 << 16
"""Rows that are copied at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The weights that a new model starts from: all dense values, and the rows that this ps needs."""

    initial: InitialModel
    weights: ModelShard

    def dense(self, signature: ModelSignature, part: DensePart, initial: Floats) -> Floats:
        """Initial dense values, with those of the other model where name and shape are the same.

        Args:
            initial: the values that the model file gives to the part, float32, in the part's order.
        """
        flat = np.zeros(sum(variable.size for variable in signature.dense), np.float32)
        part.scatter(initial, flat)
        source, sources = self.weights.whole_dense(), _places(self.weights.signature.dense)
        taken = self._match(signature).taken
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
            if self.initial.is_whole:
                target.take_initial_rows(source, shard.signature.seed)
            bound = target.table.input_dim or np.iinfo(np.int64).max
            for start in range(0, source.rows, _ROWS):
                ids, weights = source.stored_weights(start, start + _ROWS)
                legal = ids < bound
                target.load_weights(ids[legal], weights[legal])

    def load_optimizer(self, signature: ModelSignature, group: Group) -> None:
        """Continue the other job's optimizer, if that is asked for: slots of the same variables, and its iteration."""
        if not self.initial.has_optimizer:
            return
        group.iteration = self.weights.iteration
        if signature.optimizer.is_keras:  # What it keeps is not by element. ``problem`` has compared the models.
            group.dense.slots[:] = self.weights.groups[0].dense.slots
            return
        sources, taken = _places(self.weights.signature.dense), self._match(signature).taken
        trained = {one.name for one in self.weights.signature.dense if one.kind is VariableKind.TRAINABLE}
        part, count = group.part, group.dense.trainable
        for number, slots in enumerate(group.dense.slots):
            source = self._whole_slots(number)
            flat = np.zeros(sum(variable.size for variable in signature.dense), np.float32)
            values = np.zeros(part.size, np.float32)
            values[:count] = slots
            part.scatter(values, flat)
            for name, place in _places(signature.dense).items():
                if name in taken and name in trained:
                    flat[place] = source[sources[name]]
            slots[:] = part.gather(flat)[:count]

    def _whole_slots(self, number: int) -> Floats:
        """One slot of all dense variables of the other job, in its signature's order; 0 where there is none."""
        flat = np.zeros(sum(variable.size for variable in self.weights.signature.dense), np.float32)
        for group in self.weights.groups:
            values = np.zeros(group.part.size, np.float32)
            values[: group.dense.trainable] = group.dense.slots[number]
            group.part.scatter(values, flat)
        return flat

    def problem(self, signature: ModelSignature) -> str:
        """Why the new model can't start from these weights; empty if it can."""
        match = self._match(signature)
        if self.initial.is_whole and not match.is_whole:
            return f"the model file does not fit the model of {self.initial.source}"
        if self.initial.has_optimizer and signature.tables:
            return "the optimizer's state of tables on parameter servers can't be taken over (--initial_optimizer)"
        ours, theirs = _slots_of(signature), _slots_of(self.weights.signature)
        if self.initial.has_optimizer and ours != theirs:
            return f"the optimizer is {ours[0]}, and its state can't be that of {theirs[0]} in {self.initial.source}"
        if self.initial.has_optimizer and signature.optimizer.is_keras and not self._has_same_variables(signature):
            return (
                f"the state of the optimizer ({ours[0]}) fits only a model with the variables of {self.initial.source}"
            )
        return "" if match.taken else f"no variable of the model has the name and shape of one in {self.initial.source}"

    def note(self, signature: ModelSignature) -> str:
        """What the new model takes over and what it does not, for people."""
        return self.initial.note or self._match(signature).note(self.initial.text)

    def _has_same_variables(self, signature: ModelSignature) -> bool:
        ours, theirs = [
            [(one.name, one.shape, one.kind) for one in of.dense] for of in (signature, self.weights.signature)
        ]
        return ours == theirs and len(self.weights.groups) == 1

    def _match(self, signature: ModelSignature) -> Match:
        return Match(new=signature, trained=self.weights.signature)


def _slots_of(signature: ModelSignature) -> tuple[str, int]:
    """The optimizer's name, and how many slots it keeps."""
    return signature.optimizer.name, len(DenseStore((), signature.optimizer).slots)


def _places(variables: Sequence[DenseVariable]) -> Mapping[str, slice]:
    """Name -> where the variable is in the flat vector over all variables."""

    def pairs() -> Iterator[tuple[str, slice]]:
        stops = accumulate(variable.size for variable in variables)
        for variable, stop in zip(variables, stops, strict=True):
            yield variable.name, slice(stop - variable.size, stop)

    return dict(pairs())
