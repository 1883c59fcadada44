"""The networks that a statement can name, and their arguments: ``WITH model.NAME = VALUE``. Imports no Keras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT = "WideAndDeep"
OPTIMIZERS = ("adam", "adamw", "sgd", "rmsprop", "adagrad", "ftrl", "nadam", "adamax", "lion")
CLASS_WEIGHTS = ("none", "balanced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a network.

    Attributes:
        kind: ``int``, ``float``, ``text`` or ``ints`` (a list).
        default: None: by the data.
        meaning: one sentence.
        choices: the only texts; empty: any.
        low, high: limits of a number, or of each element of a list.
    """

    kind: str
    default: Any
    meaning: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = float("inf")


TRAINING: Mapping[str, Argument] = {
    "optimizer": Argument(kind="text", default="adam", meaning="Optimizer of Keras, by its name.", choices=OPTIMIZERS),
    "learning_rate": Argument(kind="float", default=None, meaning="Highest learning rate; it decays to 0.", high=10.0),
    "class_weight": Argument(
        kind="text",
        default="none",
        meaning="balanced: rare classes weigh as much in training as frequent ones.",
        choices=CLASS_WEIGHTS,
    ),
    "n_classes": Argument(kind="int", default=None, meaning="Number of classes, checked against the data.", low=2),
}
"""Arguments of every network."""
_HIDDEN = Argument(kind="ints", default=None, meaning="Units of each hidden layer.", low=1, high=65_536)
_DROPOUT = Argument(kind="float", default=0.0, meaning="Share of hidden units dropped in training.", high=0.95)
_DIMENSION = Argument(kind="int", default=8, meaning="Length of a field's vector.", low=1, high=1024)
_DEEP = {"hidden_units": _HIDDEN, "dropout": _DROPOUT}
NETWORKS: Mapping[str, Mapping[str, Argument]] = {
    "DNNClassifier": _DEEP,
    "DNNRegressor": _DEEP,
    "LinearClassifier": {},
    "LinearRegressor": {},
    "WideAndDeep": _DEEP,
    "DeepFM": {**_DEEP, "embedding_dim": _DIMENSION},
    "DCN": {
        **_DEEP,
        "cross_layers": Argument(kind="int", default=2, meaning="Number of cross layers.", low=1, high=16),
    },
}
"""Name -> its own arguments. A class or function in a file (``file.py:MyNet``) has those of its signature."""


def arguments_of(network: str) -> dict[str, Argument]:
    """All arguments of a network, by name; of one in a file only those of every network."""
    return {**TRAINING, **NETWORKS.get(network, {})}


def task_of(network: str) -> str:
    """``classification`` or ``regression`` if the network's name says it; else empty."""
    if network.endswith("Classifier"):
        return "classification"
    return "regression" if network.endswith("Regressor") else ""
