"""The columns that a model file without a feed, or a flag, names: labels, inputs and sample weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from elasticdl.shared.errors import UserError
from elasticdl.shared.words import listed

_NO_NAMES: Mapping[str, str] = MappingProxyType({})


class Constants(NamedTuple):
    """What a model file binds to these names; None: nothing.

    Only names of columns count: a file may use the names for anything else.
    """

    label: Any = None
    features: Any = None
    sample_weight: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnChoice:
    """The columns that the user names.

    Attributes:
        labels: in the order of the outputs; empty: none are named.
        features: of the only input of a model; empty: none are named. Several inputs take the columns of their names.
        named_features: key in a dict of inputs -> column; for models without input layers.
        weights: of the sample weights: one for all outputs, or one for each output in their order; empty: there are
            none.
        named_weights: output -> column of its sample weights; in place of ``weights``.
    """

    labels: tuple[str, ...] = ()
    labels_from: str = "--label"
    features: tuple[str, ...] = ()
    named_features: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    weights: tuple[str, ...] = ()
    named_weights: Mapping[str, str] = field(default_factory=lambda: _NO_NAMES)
    weights_from: str = "--sample_weight"

    @classmethod
    def of(cls, label: str, constants: Constants, path: Path, sample_weight: str = "") -> ColumnChoice:
        """The columns of the flags, else those of the model file.

        Args:
            label: value of ``--label``: names with commas between; may be empty.
            sample_weight: value of ``--sample_weight``, likewise.

        Raises:
            UserError: a list has names and other values.
        """
        labels, weights = listed(label), listed(sample_weight)
        return cls(
            labels=labels or _names_in("label", constants.label, path),
            labels_from="--label" if labels else f"label in {path}",
            features=_names_in("features", constants.features, path),
            named_features=_keyed(constants.features),
            weights=weights or _names_in("sample_weight", constants.sample_weight, path),
            named_weights=_NO_NAMES if weights else _keyed(constants.sample_weight),
            weights_from="--sample_weight" if weights else f"sample_weight in {path}",
        )

    @property
    def weight_columns(self) -> tuple[str, ...]:
        """The columns of the sample weights."""
        return self.weights or tuple(self.named_weights.values())

    @property
    def no_inputs(self) -> tuple[str, ...]:
        """Columns that a model does not get as its input, unless it names them."""
        return (*self.labels, *self.weight_columns)


def _keyed(value: Any) -> Mapping[str, str]:
    """A dict of names; empty if it holds something else."""
    keyed = value if isinstance(value, Mapping) else {}
    return MappingProxyType({**keyed} if all(isinstance(one, str) for pair in keyed.items() for one in pair) else {})


def _names_in(constant: str, value: Any, path: Path) -> tuple[str, ...]:
    """The names of columns in a value of the model file; empty if it holds something else."""
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list | tuple) or not any(isinstance(one, str) for one in value):
        return ()
    for one in value:
        if not isinstance(one, str):
            raise UserError(f"{constant} in {path} has {one!r} among the names of columns", hint="List names only.")
    return tuple(value)
