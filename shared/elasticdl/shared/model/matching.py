"""Which variables of a new model take the weights of a trained one: those with the same name and shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.words import some_of

_NAMES_MAX = 6
"""Names in a list for people."""

_Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class Match:
    """Compares two models by the names and shapes of their variables, and by the names and widths of their tables.

    Attributes:
        new: the model that starts from the weights.
    """

    new: ModelSignature
    trained: ModelSignature

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of the variables and tables that both models have with the same shape."""
        there = _shapes(self.trained)
        return frozenset(name for name, shape in _shapes(self.new).items() if there.get(name) == shape)

    @property
    def is_whole(self) -> bool:
        """Whether every variable and table of the new model is among them."""
        return len(self.taken) == len(_shapes(self.new))

    @property
    def is_same(self) -> bool:
        """Whether both models have the same variables and tables, in the same order."""
        return [*_shapes(self.new).items()] == [*_shapes(self.trained).items()] and not self.differences

    def note(self, source: str) -> str:
        """What the new model takes over and what it does not, for people."""
        text = f"Loaded {len(self.taken)} of {len(_shapes(self.new))} variables from {source}."
        return f"{text} {self.differences}".rstrip()

    @property
    def differences(self) -> str:
        """What differs between both models, in sentences; empty if nothing does."""
        wanted, there, taken = _shapes(self.new), _shapes(self.trained), self.taken
        here_rows, there_rows = _rows(self.new), _rows(self.trained)
        lists = {
            "Different shape": [
                f"{name} {wanted[name]} (there {there[name]})" for name in wanted if name in there.keys() - taken
            ],
            "Different number of rows": [
                f"{name} {rows:,} (there {there_rows[name]:,})"
                for name, rows in here_rows.items()
                if name in taken and rows and there_rows[name] not in (0, rows)
            ],
            "New in this model": [name for name in wanted if name not in there],
            "Unused": [name for name in there if name not in wanted],
        }
        return " ".join(f"{title}: {some_of(names, _NAMES_MAX)}." for title, names in lists.items() if names)


def _shapes(signature: ModelSignature) -> _Shapes:
    """Name -> shape of each dense variable, and (width,) of each table."""
    shapes: dict[str, tuple[int, ...]] = {variable.name: variable.shape for variable in signature.dense}
    return shapes | {table.name: (table.width,) for table in signature.tables}


def _rows(signature: ModelSignature) -> Mapping[str, int]:
    """Name -> number of rows of each table; 0: any number."""
    return {table.name: table.input_dim for table in signature.tables}
