"""``elasticdl data put`` and ``elasticdl zoo data``: upload data sets, and write example data sets."""

from __future__ import annotations

from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.shared.data import put
from elasticdl.shared.storage import display, open_store
from elasticdl.zoo import MODELS, write


def write_example(name: str, folder: Path, records: int | None, seed: int, source: Path | None) -> None:
    """Write an example data set and print the command that trains on it.

    Raises:
        UserError: no such data set, an option that it does not have, or a folder that can't be used.
    """
    summary = write(name, folder, records=records, seed=seed, source=source)
    console = plain_console()
    console.print(
        f"{summary.train}: {summary.train_records:,} records, {summary.test}: {summary.test_records:,} records"
    )
    for metric, value in summary.best.items():
        console.print(f"The best possible {metric} on {summary.test} is {value:.4f}.")
    console.print(
        f"Train with: elasticdl train --model_def={MODELS[name]}.custom_model --training_data={summary.train} "
        f"--validation_data={summary.test} --output=output"
    )


def upload(source: Path, destination: str) -> None:
    """Copy a local file or folder to object storage; prints one line per object.

    Raises:
        UserError: there is nothing to copy, or the destination can't be written.
    """
    console = plain_console()
    written = put(
        source,
        destination,
        open_store(destination),
        progress=lambda info: console.print(f"{display(info.uri)}  {info.size_bytes:,} bytes"),
    )
    console.print(f"Uploaded {len(written)} objects, {sum(info.size_bytes for info in written):,} bytes.")
