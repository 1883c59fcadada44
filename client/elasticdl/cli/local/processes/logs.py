"""The files that child processes write: the end of their logs, and what user code prints."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.shared.pods import log_lines

TAIL_LINES = 30
TAIL_BYTES = 32_768
"""Bytes of a log that are read first; more if they hold too few lines."""
PRINTED = ("*.out",)
"""Pattern of the files with what user code prints."""
LOG_BYTES_MAX = 32 << 20
"""Bytes from which a log begins again; its former part is kept."""
READ_BYTES_MAX = 65_536
"""Bytes read of one file at a time; more output is shown in several steps."""


def bound(folder: Path, bytes_max: int = LOG_BYTES_MAX) -> None:
    """Keep the files of a folder small. The launcher calls it about once a second.

    The content of a file above the limit becomes its former part, and the file begins again. Processes append to it, so
    they need not know. What they write at this very moment may be lost.
    """
    for path in _files(folder, ("*.log", *PRINTED)):
        if path.stat().st_size <= bytes_max:
            continue
        try:
            shutil.copyfile(path, former_part(path))
        except OSError:  # The disk is full: the job needs the space more than the former part of a log.
            former_part(path).unlink(missing_ok=True)
        os.truncate(path, 0)


def former_part(path: Path) -> Path:
    """The file with what was in a log before it began again."""
    return path.with_name(f"{path.name}.1")


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file, JSON lines made readable; empty if the file does not exist."""
    return "\n".join(tail_and_end(path, lines)[0])


def tail_and_end(path: Path, lines: int, *, complete: bool = False) -> tuple[Sequence[str], int]:
    """The last lines of a log file, JSON lines made readable, and the position in the file after them.

    Args:
        path: the file; if it does not exist, it has no lines.
        complete: leave out a last line that has no end yet.
    """
    found, end = _last_lines(path, lines, complete=complete)
    if len(found) < lines:
        found = [*_last_lines(former_part(path), lines - len(found), complete=False)[0], *found]
    return found, end


def _last_lines(path: Path, lines: int, *, complete: bool) -> tuple[list[str], int]:
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
        patterns: of their names; by default those of what user code prints.
        read: position in each file up to which it is not new; by default the end.
    """

    def __init__(self, folder: Path, patterns: Sequence[str] = PRINTED, read: Mapping[Path, int] | None = None) -> None:
        self._folder = folder
        self._patterns = patterns
        self._read = dict(read) if read is not None else {path: path.stat().st_size for path in self._files()}

    def take(self, *, partial: bool = False) -> list[tuple[str, str]]:
        """(process, line) for lines since the last call, at most ``READ_BYTES_MAX`` of each file."""
        found = []
        for path in self._files():
            if path.stat().st_size < self._read.get(path, 0):  # It has begun again.
                self._read[path] = 0
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
        return _files(self._folder, self._patterns)


def _files(folder: Path, patterns: Sequence[str]) -> list[Path]:
    return sorted(path for pattern in patterns for path in folder.glob(pattern))
