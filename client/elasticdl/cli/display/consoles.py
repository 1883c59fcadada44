"""Consoles: for what commands print, and for what a job prints while it runs."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_PIPE_COLUMNS = 10_000
"""Nothing is wrapped or cut where nobody looks at columns."""


def plain_console() -> Console:
    """For the lines and tables of a command: as wide as the terminal; not wrapped in a pipe or a file."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)


class JobConsole(Console):
    """For what a job tells while it runs; should nobody read it any more (``| head``), the job goes on in silence."""

    def __init__(self) -> None:
        super().__init__(highlight=False)

    def on_broken_pipe(self) -> None:
        """Print into nothing from now on; rich would end the process."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
