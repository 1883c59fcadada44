"""Consoles for the output of commands, for the output of a running job, and for errors.

All of them are rich consoles, which leave out colours when the output is not a terminal or ``NO_COLOR`` is set.
"""

from __future__ import annotations

import errno
import os
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TextIO, cast

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
    return Console(file=_never_failing(sys.stderr), stderr=True, highlight=False, markup=False)


def print_error(message: str) -> None:
    """Print an error message with its prefix on stderr."""
    error_console().print(Text.assemble(("Error: ", "bold red"), message.rstrip()), soft_wrap=True)


def wrapped(text: str, console: Console, indent: int = 0) -> str:
    """A text as a terminal should show it: wrapped between words, with long words such as paths in one piece.

    Args:
        console: where it is printed; outside of a terminal nothing is wrapped.
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
    """For the output of a running job. If the reader or the terminal goes away, the job continues without output."""

    def __init__(self) -> None:
        self._output = _NeverFailing(sys.stdout)
        super().__init__(file=cast(IO[str], self._output), highlight=False, markup=False)

    @property
    def has_lost_reader(self) -> bool:
        """Whether the other end of the output was closed."""
        return self._output.is_lost

    def print_line(self, line: str) -> None:
        """Print a message, wrapped for a terminal."""
        self.print(wrapped(line, self), soft_wrap=True)


def move_output(log: Path, descriptors: Iterable[int]) -> None:
    """Append to a file what this process would print from now on. What a closed terminal has not taken is lost.

    Args:
        log: the file. If it can't be written, the output is lost.
    """
    for descriptor in descriptors:
        _connect(descriptor, Path(os.devnull))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    for descriptor in descriptors:
        _connect(descriptor, log)


class _NeverFailing:
    """A standard stream that loses what a closed pipe or terminal does not take."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lose(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        self.is_lost = error.errno in (errno.EPIPE, errno.EIO)  # Not a full disk.
        _connect(self._stream.fileno(), Path(os.devnull))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


def _never_failing(stream: TextIO) -> IO[str]:
    return cast(IO[str], _NeverFailing(stream))


def _connect(descriptor: int, file: Path) -> None:
    try:
        opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError:
        return
    os.dup2(opened, descriptor)
    os.close(opened)
