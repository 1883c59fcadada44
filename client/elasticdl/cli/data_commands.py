"""The commands ``elasticdl zoo`` and ``elasticdl data``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticdl.cli.options import Flag, command

zoo = typer.Typer(no_args_is_help=True, help="Example models and example data.")
data = typer.Typer(no_args_is_help=True, help="Data sets.")


@command(zoo, "data")
def zoo_data(
    name: Annotated[str, typer.Argument(help="mnist, census or deepfm.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to.")],
    records: Annotated[int | None, Flag("Number of training records (census, deepfm).", metavar="N")] = None,
    seed: Annotated[int, Flag("Seed. The same seed gives the same data.", metavar="N")] = 0,
    source: Annotated[Path | None, Flag("Folder with the original MNIST files, to convert.", metavar="DIR")] = None,
) -> None:
    """Write the example data of a model in the zoo to DIR/train and DIR/test."""
    from elasticdl.cli.commands.data import write_example

    write_example(name, folder, records, seed, source)


@command(data, "put")
def data_put(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Local file or folder.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="s3://bucket/prefix")],
) -> None:
    """Upload a data set to object storage."""
    from elasticdl.cli.commands.data import upload

    upload(source, destination)
