"""The files that child processes write: the end of their logs, and what user code prints."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.shared.pods import log_lines

TAIL_LINES = 30
TAIL_BYTES = 32_768
"""Bytes of a log that are read first; more if they hold too few lines."""
PRINTED = ("*.out",)
"""Pattern of the files with what user code prints."""
READ_BYTES_MAX = 65_536
"""Bytes read of one file at a time; more output is shown in several steps."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file, JSON lines made readable; empty if the file does not exist."""
    return "\n".join(tail_and_end(path, lines)[0])


def tail_and_end(path: Path, lines: int, *, complete: bool = False) -> tuple[Sequence[str], int]:
    """The last lines of a log file, JSON lines made readable, and the position in the file after them.

    Args:
        path: the file; if it does not exist, it has no lines.
        lines: how many, at most.
        complete: leave out a last line that has no end yet.
    """
    size = TAIL_BYTES
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while True:
                start = file.seek(max(0, end - size))
                content = file.read(end - start)
                if start:  # The first line may be a part of one.
                    content = content[content.find(b"\n") + 1 :]
                unfinished = len(content) - content.rfind(b"\n") - 1 if complete else 0
                content = content[: len(content) - unfinished]
                whole = content.decode(errors="replace").splitlines()
                found = log_lines.readable_lines(whole)
                if len(found) >= lines or not start:
                    break
                size *= 4
    except OSError:
        return [], 0
    return found[-lines:], end - unfinished


def last_error(path: Path, lines: int) -> str:
    """The last error in a log and the lines after it, at most ``lines``; without an error, the last lines."""
    return "\n".join(log_lines.last_error(tail(path).splitlines(), lines))


class NewLines:
    """New lines in files of a folder.

    Args:
        folder: where the files are.
        patterns: of their names; by default those of what user code prints.
        read: position in each file up to which it is not new; by default the end.
    """

    def __init__(self, folder: Path, patterns: Sequence[str] = PRINTED, read: Mapping[Path, int] | None = None) -> None:
        self._folder = folder
        self._patterns = patterns
        self._read = dict(read) if read is not None else {path: path.stat().st_size for path in self._files()}

    def take(self, *, partial: bool = False) -> list[tuple[str, str]]:
        """(process, line) for lines since the last call, at most ``READ_BYTES_MAX`` of each file.

        Args:
            partial: also take a last line that has no end.
        """
        found = []
        for path in self._files():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                piece = file.read(READ_BYTES_MAX)
            complete = piece.rfind(b"\n") + 1
            is_whole = len(piece) < READ_BYTES_MAX
            if (partial and is_whole) or not (complete or is_whole):
                complete = len(piece)  # A line longer than a piece is shown in parts.
            self._read[path] = self._read.get(path, 0) + complete
            lines = piece[:complete].decode(errors="replace").splitlines()
            found += [(path.stem, line) for line in lines]
        return found

    def _files(self) -> list[Path]:
        return sorted(path for pattern in self._patterns for path in self._folder.glob(pattern))
