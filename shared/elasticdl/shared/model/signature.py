"""What a ps has to know of a model: names, shapes, initializers and the optimizer, and nothing of TensorFlow.

A signature is a value: the first ``Initialise`` fixes it for the job, a later one that differs is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

Number = float | int | bool

_ELEMENTS_MAX = 1 << 40
_WIDTH_MAX = 1 << 20
"""Floats per row: more than any embedding has, and few enough for a row to fit into memory."""
_INT64_MAX = (1 << 63) - 1
EMA_MOMENTUM, EMA_OVERWRITE_FREQUENCY = EMA = ("ema_momentum", "ema_overwrite_frequency")
"""Hyperparameters of any optimizer that keeps averages of the dense weights."""
KEPT = "kept_floats"
"""Hyperparameter of an optimizer that Keras runs: how many floats it keeps."""
_KERAS = "keras "
_WITHOUT_MAGNITUDES = frozenset({"sgd", "lion"})
UPDATES_MAX = (1 << 31) - 2
"""Largest ``min_count`` and ``expire_after``: a ps counts updates in 32 bits."""


def _check(legal: bool, what: str) -> None:
    if not legal:
        raise ValueError(f"not a model: {what}")


def _is_integer(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _are_numbers(*values: object) -> bool:
    return all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )


class VariableKind(Enum):
    """Which rule of the variable table applies to a dense variable."""

    TRAINABLE = "trainable"
    """Gradients are pushed and the optimizer moves it."""
    STATISTIC = "statistic"
    """Layer state that the forward pass moves, like the moving averages of BatchNorm; ``StateRule`` says how."""
    FROZEN = "frozen"
    """Pulled, never pushed."""


class StateUpdate(Enum):
    """How layer state takes part ``x`` of a batch, whatever its value ``v`` is by then."""

    SUM = "sum"
    """``v + x``."""
    ASSIGN = "assign"
    """``x``: the last batch wins."""
    MOVING_AVERAGE = "moving_average"
    """``momentum * v + x``."""
    MAXIMUM = "maximum"
    """``max(v, x)``, element by element."""
    MINIMUM = "minimum"
    """``min(v, x)``, element by element."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRule:
    """The update of a STATISTIC variable, and the values that it may take.

    Attributes:
        momentum: MOVING_AVERAGE: the share of the old value that stays; otherwise 0.
        low: smallest legal value, or None: any finite one.
        high: largest legal value, or None: any finite one.
    """

    update: StateUpdate = StateUpdate.SUM
    momentum: float = 0.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.low, self.high) if bound is not None]
        _check(_are_numbers(self.momentum, *bounds), f"layer state: {self}")

    @property
    def kept(self) -> float:
        """The share of the old value that is part of the new one; 0 where that is no sum of both."""
        return 1.0 if self.update is StateUpdate.SUM else self.momentum

    def __str__(self) -> str:
        named = self.update.value.replace("_", " ")
        return f"{named} {self.momentum:g}" if self.update is StateUpdate.MOVING_AVERAGE else named


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseVariable:
    """One dense float32 variable.

    Attributes:
        name: Keras' variable path, unique in the model.
        shape: its shape; its flat block is row-major.
        weight_decay: whether the optimizer's decoupled weight decay applies (Keras' exclusions resolved).
        state: STATISTIC: how a batch changes it.
        nonnegative: whether an update sets negative values to 0 (Keras' constraint ``NonNeg``).
        gathered: rows of it are looked up, and its gradient comes in parts, several for a row that a batch uses several
            times. Pushes carry their magnitudes, too: see ``Optimizer.power``.
    """

    name: str
    shape: tuple[int, ...]
    kind: VariableKind
    weight_decay: bool = True
    state: StateRule = StateRule()
    nonnegative: bool = False
    gathered: bool = False

    def __post_init__(self) -> None:
        _check(isinstance(self.name, str) and isinstance(self.weight_decay, bool), f"dense variable {self.name!r}")
        legal = all(_is_integer(extent, 0, _ELEMENTS_MAX) for extent in self.shape) and self.size <= _ELEMENTS_MAX
        _check(legal, f"dense variable {self.name!r} has the shape {self.shape!r}")

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True, kw_only=True)
class RowInitializer:
    """How a missing row comes to be: a distribution driven by a hash of (seed, table, id), never stored.

    Attributes:
        distribution: ``zeros``, ``constant``, ``uniform``, ``normal`` or ``truncated_normal``.
        low: uniform: lower bound; constant: the value; normal: the mean.
        high: uniform: upper bound; normal: the standard deviation.
    """

    distribution: str
    low: float = 0.0
    high: float = 0.0

    def __post_init__(self) -> None:
        legal = isinstance(self.distribution, str) and _are_numbers(self.low, self.high)
        _check(legal, f"initializer {self.distribution!r} has the bounds {self.low!r} and {self.high!r}")

    def scaled(self, factor: float) -> RowInitializer:
        """Gives rows that are multiplied by a factor: all distributions are linear in their two numbers."""
        return self if factor == 1 else replace(self, low=self.low * factor, high=self.high * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTable:
    """One embedding table served row by row.

    Attributes:
        name: unique in the model.
        width: floats per row.
        input_dim: number of ids, or 0 when open-ended; ids outside are refused.
        kind: TRAINABLE or FROZEN.
        min_count: how many updates must have had a gradient for an id until its row is stored; 1: the first stores it.
        expire_after: a row is removed when this many updates have had no gradient for it; 0: never.
        weight_decay: whether the optimizer's decoupled weight decay applies (Keras' exclusions resolved).
    """

    name: str
    width: int
    initializer: RowInitializer
    input_dim: int = 0
    kind: VariableKind = VariableKind.TRAINABLE
    min_count: int = 1
    expire_after: int = 0
    weight_decay: bool = True

    def __post_init__(self) -> None:
        legal = _is_integer(self.width, 1, _WIDTH_MAX) and _is_integer(self.input_dim, 0, _INT64_MAX)
        legal = legal and isinstance(self.weight_decay, bool)
        _check(legal and isinstance(self.name, str), f"table {self.name!r} is {self.input_dim!r} x {self.width!r}")
        legal = _is_integer(self.min_count, 1, UPDATES_MAX) and _is_integer(self.expire_after, 0, UPDATES_MAX)
        _check(legal, f"table {self.name!r} has min_count {self.min_count!r} and expire_after {self.expire_after!r}")

    @property
    def has_candidates(self) -> bool:
        """Whether ids are counted before they get rows."""
        return self.min_count > 1

    @property
    def is_tracked(self) -> bool:
        """Whether rows are admitted by count, or expire."""
        return self.has_candidates or self.expire_after > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimizer in Keras' words.

    Attributes:
        name: ``sgd``, ``adagrad``, ``adam``, ``adamw``, ``rmsprop``, ``ftrl``, ``adadelta``, ``adamax``, ``nadam`` or
            ``lion``; or ``keras Lamb``: Keras runs this class itself, on replicas, see ``is_keras``.
        learning_rate: the constant rate, used when ``schedule`` is empty.
        hyperparameters: Keras' own names (``momentum``, ``nesterov``, ``beta_1``, ``epsilon``, ``amsgrad``...).
        schedule: a built-in schedule's class name (``ExponentialDecay``...), or empty.
        rate_from_worker: the schedule is the user's own: every push carries the rate.
    """

    name: str
    learning_rate: float
    hyperparameters: Mapping[str, Number] = field(default_factory=lambda: MappingProxyType({}))
    schedule: str = ""
    schedule_config: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    rate_from_worker: bool = False

    def __post_init__(self) -> None:
        texts = isinstance(self.name, str) and isinstance(self.schedule, str)
        maps = isinstance(self.hyperparameters, Mapping) and isinstance(self.schedule_config, Mapping)
        legal = texts and maps and _are_numbers(self.learning_rate) and isinstance(self.rate_from_worker, bool)
        _check(legal, f"optimizer {self.name!r} with the learning rate {self.learning_rate!r}")

    @property
    def is_keras(self) -> bool:
        """Whether Keras applies it to whole variables, instead of a formula to each element."""
        return self.name.startswith(_KERAS)

    @property
    def power(self) -> int:
        """The power of the magnitude of gradients that it averages: 2 of squares, 1 of absolute values, 0 of neither.

        On TensorFlow, Keras takes it of each part of the gradient of a lookup, then adds the parts up for each row.
        """
        if self.is_keras or self.name in _WITHOUT_MAGNITUDES:
            return 0
        return 1 if self.name == "adamax" else 2

    @property
    def kept(self) -> int:
        """Floats that an optimizer keeps which Keras runs."""
        return int(self.hyperparameters.get(KEPT, 0))

    def run_by_keras(self, classes: str, kept: int) -> Optimizer:
        """The same optimizer, run by Keras, which keeps so many floats."""
        hyperparameters = MappingProxyType({**self.hyperparameters, KEPT: kept})
        return replace(self, name=_KERAS + classes, hyperparameters=hyperparameters)

    def of_table(self, table: RowTable) -> Optimizer:
        """The optimizer of a table's rows."""
        if table.weight_decay:
            return self
        return replace(self, hyperparameters=MappingProxyType({**self.hyperparameters, "weight_decay": 0.0}))


@dataclass(frozen=True, kw_only=True)
class ModelSignature:
    """Everything that two processes must agree on to train one model."""

    dense: tuple[DenseVariable, ...]
    tables: tuple[RowTable, ...]
    optimizer: Optimizer
    seed: int

    def __post_init__(self) -> None:
        _check(_is_integer(self.seed, -_INT64_MAX - 1, 2 * _INT64_MAX + 1), f"the seed {self.seed!r}")

    @property
    def weights_bytes(self) -> int | None:
        """Bytes of all weights, untrained rows included; None if a table has no ``input_dim``."""
        if not all(table.input_dim for table in self.tables):
            return None
        rows = sum(table.input_dim * table.width for table in self.tables)
        return 4 * (sum(variable.size for variable in self.dense) + rows)

    def fits(self, bytes_max: int) -> bool:
        """Whether all weights, untrained rows included, are a known number of bytes up to a limit."""
        size = self.weights_bytes
        return size is not None and size <= bytes_max

    @property
    def without_tables(self) -> ModelSignature:
        """The part of the model that replicas have."""
        return replace(self, tables=())

    @property
    def without_dense(self) -> ModelSignature:
        """The part of the model that ps have beside a ring."""
        return replace(self, dense=())

    def to_json(self) -> str:
        """Canonical JSON."""
        return self._json

    @cached_property
    def _json(self) -> str:
        def plain(value: Any) -> object:
            if isinstance(value, Enum):
                return value.value
            if isinstance(value, Mapping):
                return dict(value)
            return {field.name: getattr(value, field.name) for field in fields(value)}

        return json.dumps(plain(self), sort_keys=True, default=plain)

    @classmethod
    def from_json(cls, text: str) -> ModelSignature:
        """Inverse of ``to_json``.

        Raises:
            ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError: the text describes no model.
        """
        facts = json.loads(text)
        return cls(
            dense=tuple(_dense_variable(**variable) for variable in facts["dense"]),
            tables=tuple(
                RowTable(**(t | {"initializer": RowInitializer(**t["initializer"]), "kind": VariableKind(t["kind"])}))
                for t in facts["tables"]
            ),
            optimizer=Optimizer(**facts["optimizer"]),
            seed=facts["seed"],
        )

    def digest(self) -> str:
        """16 hex digits that differ when the signature does."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]


def _dense_variable(*, shape: list[int], kind: str, state: dict[str, Any], **facts: Any) -> DenseVariable:
    rule = StateRule(**(state | {"update": StateUpdate(state["update"])}))
    return DenseVariable(shape=tuple(shape), kind=VariableKind(kind), state=rule, **facts)
