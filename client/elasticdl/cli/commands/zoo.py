"""``elasticdl zoo data``: write the example data of a model in the zoo, and say what to do with it."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

from rich.console import Console

from elasticdl.zoo import write

MODELS = MappingProxyType({"mnist": "mnist_functional_api", "census": "census_wide_deep", "deepfm": "deepfm"})
"""Data set -> the model of the zoo that learns from it."""


def write_example(name: str, folder: Path, records: int | None, seed: int, source: Path | None) -> None:
    """Write a data set and print the command that trains on it.

    Raises:
        UserError: no such data set, an option that it does not have, or a folder that can't be used.
    """
    summary = write(name, folder, records=records, seed=seed, source=source)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(
        f"{summary.train}: {summary.train_records:,} records, {summary.test}: {summary.test_records:,} records"
    )
    for metric, value in summary.best.items():
        console.print(f"the best {metric} that any model can reach on {summary.test} is {value:.4f}")
    console.print(
        f"Train with: elasticdl train --model_def={MODELS[name]}.custom_model --training_data={summary.train} "
        f"--validation_data={summary.test} --output=output"
    )
