"""The example models that are shipped with this package, as files that users copy."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

MODELS = MappingProxyType({"mnist": "mnist_functional_api", "census": "census_wide_deep", "deepfm": "deepfm"})
"""Example data set -> the model of the zoo that trains on it."""


def shipped_model_zoo() -> Path | None:
    """The model zoo of this package: inside the package in a wheel, in the root folder of a source checkout."""
    package = Path(__file__).resolve().parents[1]
    candidates = (package / "model_zoo", package.parents[1] / "model_zoo")
    return next((folder for folder in candidates if folder.is_dir()), None)
