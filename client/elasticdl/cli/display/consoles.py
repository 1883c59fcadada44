"""Consoles for the output of commands, for the output of a running job, and for errors.

All of them are rich consoles, which leave out colours when the output is not a terminal or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import os
import sys
import textwrap

from rich.console import Console
from rich.text import Text

_PIPE_COLUMNS = 10_000
"""Width of output that goes to a pipe or a file, so that no line is wrapped or cut."""


def plain_console() -> Console:
    """For the lines and tables of a command: as wide as the terminal, and never wrapped in a pipe or a file."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)


def error_console() -> Console:
    """For messages on stderr."""
    return Console(stderr=True, highlight=False, markup=False)


def error_text(message: str) -> Text:
    """An error message with its prefix."""
    return Text.assemble(("Error: ", "bold red"), message.rstrip())


def wrapped(text: str, console: Console, indent: int = 0) -> str:
    """A text as a terminal should show it: wrapped between words, with long words such as paths in one piece.

    Args:
        text: one or more lines.
        console: where it is printed; outside of a terminal nothing is wrapped.
        indent: columns to the left of the text.
    """
    if not console.is_terminal:
        return text
    return "\n".join(
        textwrap.fill(
            line,
            console.width,
            initial_indent=" " * indent,
            subsequent_indent=" " * indent,
            expand_tabs=False,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )[indent:]
        for line in text.splitlines()
    )


class JobConsole(Console):
    """For the output of a running job. If the reader goes away (``| head``), the job continues without output."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False)

    def print_line(self, line: str) -> None:
        """Print a message, wrapped for a terminal."""
        self.print(wrapped(line, self), soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Discard all further output. Rich would end the process."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
