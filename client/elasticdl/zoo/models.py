"""The example models that are shipped with this package, as files that users copy."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

MODELS = MappingProxyType(
    {
        "mnist": "mnist_functional_api",
        "cifar10": "cifar10_resnet20",
        "census": "census_wide_deep",
        "deepfm": "deepfm",
        "two_tower": "two_tower",
        "text_classification": "text_classification",
        "time_series": "time_series",
    }
)
"""Example data set -> the model of the zoo that trains on it."""
DATA_OF_OTHERS = MappingProxyType({"mnist_subclass": "mnist", "dcn_v2": "deepfm"})
"""Further model of the zoo -> its data set."""


def example_data(stem: str) -> str | None:
    """The data set that a model file trains on, if it is one of the zoo or is named like its data set.

    Args:
        stem: name of the file, without ``.py``.
    """
    known = {model: name for name, model in MODELS.items()} | dict(DATA_OF_OTHERS)
    return known.get(stem) or next((name for name in MODELS if stem.startswith(name)), None)


def shipped_model_zoo() -> Path | None:
    """The model zoo of this package: inside the package in a wheel, in the root folder of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    candidates = (package / "model_zoo", package.parents[1] / "model_zoo")
    return next((folder for folder in candidates if folder.is_dir()), None)
