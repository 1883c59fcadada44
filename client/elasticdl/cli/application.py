"""An application of typer with the name and the common options of ``elasticdl``, and how its errors are shown.

There are two: all commands (``main.py``), and those that only look at a job (``inspecting_commands.py``), which start
in three quarters of the time, because they do not need the flags of new jobs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from elasticdl.cli import exit_codes
from elasticdl.cli.former_flags import refuse_former_flags
from elasticdl.cli.surroundings import check_working_folder, ensure_home
from elasticdl.shared.errors import ElasticDLError


def new_application() -> typer.Typer:
    """An application without commands."""
    app = typer.Typer(
        name="elasticdl",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
        help="Elastic training of Keras models on workers and parameter servers. Every minibatch counts exactly once, "
        "even when processes are killed.",
        epilog="First run: [bold]elasticdl zoo data mnist mnist[/bold], then [bold]elasticdl train "
        "--model_def=mnist_functional_api.custom_model --training_data=mnist/train --output=output[/bold]",
    )
    app.callback()(_root)
    return app


def run_application(app: typer.Typer, arguments: Sequence[str], of_script: Sequence[str] = ()) -> None:
    """Run a command, and end the process; ``elasticdl.cli.__main__`` handles signals.

    Args:
        of_script: further arguments, which are for a script.
    """
    try:
        check_working_folder()
        if note := ensure_home(os.environ):
            sys.stderr.write(f"{note}\n")
        refuse_former_flags(arguments)
        app(args=[*arguments, *of_script])
    except ElasticDLError as error:
        if "--debug" in arguments:
            raise
        from elasticdl.cli.display.consoles import print_error

        print_error(str(error))
        sys.exit(exit_codes.of_error(error))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"elasticdl {version('elasticdl')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show Python tracebacks of errors.")] = False,
) -> None:
    del version, debug
