"""The command ``elasticdl trainingjob``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticdl.cli.options import command

trainingjob = typer.Typer(no_args_is_help=True, help="Objects of the Kubernetes resource TrainingJob.")


@trainingjob.callback()
def _root() -> None:
    pass


@command(trainingjob, "convert")
def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with TrainingJobs of PaddlePaddle EDL.")],
) -> None:
    """Print TrainingJobs of PaddlePaddle EDL (paddlepaddle.org/v1) as those of today.

    A comment tells of each field that has no meaning any more, and of what is left to do.
    """
    from elasticdl.cli.commands.training_job import converted_text

    typer.echo(converted_text(file), nl=False)
