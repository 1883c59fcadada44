"""The commands ``elasticdl zoo`` and ``elasticdl data``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticdl.cli.options import Json, command, filled_path
from elasticdl.shared.job.job_options import DataFlags
from elasticdl.shared.job.options import Flag

zoo = typer.Typer(no_args_is_help=True, help="Example models and data, and images with models of your own.")
data = typer.Typer(no_args_is_help=True, help="Data sets.")


@command(zoo, "data")
def zoo_data(
    name: Annotated[
        str, typer.Argument(help="mnist, cifar10, census, deepfm, two_tower, text_classification or time_series.")
    ],
    folder: Annotated[Path, typer.Argument(parser=filled_path, metavar="DIR", help="Folder to write to.")],
    records: Annotated[int | None, Flag("Number of training records (not of mnist).", metavar="N")] = None,
    seed: Annotated[int, Flag("Seed. The same seed gives the same data.", metavar="N")] = 0,
    source: Annotated[Path | None, Flag("Folder with the real MNIST or CIFAR-10, to convert.", metavar="DIR")] = None,
) -> None:
    """Write the example data of a model in the zoo to DIR/train and DIR/test."""
    from elasticdl.cli.commands.data import write_example

    write_example(name, folder, records, seed, source)


@command(zoo, "init")
def zoo_init(
    folder: Annotated[
        Path,
        typer.Argument(parser=filled_path, metavar="DIR", help="Folder to write to; may hold model files already."),
    ],
    base_image: Annotated[
        str, Flag("Image to derive from.", metavar="IMAGE", shows="elasticdl-worker of this version")
    ] = "",
    example: Annotated[str, Flag("Model to copy, by the name of its example data.", metavar="NAME")] = "mnist",
) -> None:
    """Write a Dockerfile, requirements.txt and a model file to DIR, for an image of your own.

    Workers of jobs on Kubernetes need such an image if model files import packages that elasticdl-worker lacks.
    """
    from elasticdl.cli.commands.image_folder import init

    init(folder, base_image=base_image, example=example)


@command(data, "inspect")
def data_inspect(
    path: Annotated[str, typer.Argument(metavar="DATA", help="File, folder or glob, local or s3://bucket/prefix.")],
    flags: DataFlags,
    samples: Annotated[int, Flag("Records to show.", metavar="N", limits=(0, 100))] = 3,
    as_json: Json = False,
) -> None:
    """Show what a job would read: files, records, columns with their types and values, and the first records.

    Reads all data once, as a job does before it starts, and the first million records again for their values. Names the
    first record that is wrong, and every column that a job would refuse, with what to do.
    """
    from elasticdl.cli.commands.inspect_data import inspect_data

    inspect_data(path, flags, samples, as_json=as_json)


@command(data, "convert")
def data_convert(
    source: Annotated[
        str,
        typer.Argument(metavar="SRC", help="TFRecord or RecordIO: file, folder or glob, local or s3://bucket/prefix."),
    ],
    destination: Annotated[
        str,
        typer.Argument(metavar="DEST", help="File that ends with .recordio or .tfrecord, local or s3://bucket/name."),
    ],
    compression: Annotated[
        Literal["snappy", "gzip", "none"], Flag("Compression of RecordIO files.", metavar="NAME")
    ] = "snappy",
) -> None:
    """Write the records of TFRecord files to a RecordIO file, or the other way round.

    The bytes of the records and their order are kept. RecordIO is the format of ElasticDL's first version.
    """
    from elasticdl.cli.commands.data import convert

    convert(source, destination, compression)


@command(data, "put")
def data_put(
    source: Annotated[Path, typer.Argument(parser=filled_path, metavar="SRC", help="Local file or folder.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="s3://bucket/prefix")],
) -> None:
    """Upload a data set to object storage."""
    from elasticdl.cli.commands.data import upload

    upload(source, destination)
