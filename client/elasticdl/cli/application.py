"""An application of typer with the name and the common options of ``elasticdl``.

There are two: all commands (``main.py``), and each of those that only look at a job (``inspecting_commands.py``), which
do not need the flags of new jobs, and for their usual command lines not even typer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from elasticdl.cli.exit_codes import run_guarded


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
    run_guarded(lambda: app(args=[*arguments, *of_script]), arguments)


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
