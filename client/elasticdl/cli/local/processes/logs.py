"""The files that child processes write: the end of their logs, and what user code prints."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

TAIL_LINES = 30
TAIL_BYTES_MAX = 32_768
PRINTED = ("*.out",)
"""Pattern of the files with what user code prints."""
READ_BYTES_MAX = 65_536
"""Bytes read of one file at a time; more output is shown in several steps."""
_NOT_SHOWN = frozenset({"event", "level", "timestamp", "service", "job", "pod", "incarnation", "exception"})
_NOISE = re.compile(
    r"(\d{4}-\d\d-\d\d [\d:.]+ ?)?[IW](\d{4} [\d:.]+ +\d+| tensorflow/)"
    r"|WARNING: All log messages before absl::InitializeLog|To enable the following instructions: "
)
"""What TensorFlow writes in every process: information and warnings of its C++ code."""


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file, JSON lines made readable; empty if the file does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    found = [line for line in _without_stacks(text.splitlines()) if not is_noise(line)]
    return "\n".join(readable(line) for line in found[-lines:])


def last_error(path: Path, lines: int) -> str:
    """The last error in a log and the lines after it, at most ``lines``; without an error, the last lines."""
    found = tail(path).splitlines()
    last = max((number for number, line in enumerate(found) if line.startswith("error: ")), default=0)
    return "\n".join(found[max(last, len(found) - lines) :])


def _without_stacks(lines: list[str]) -> Iterator[str]:
    """Leave out the interpreter's stack dumps of crashes, which are in the file and of no use to users."""
    inside = False
    for line in lines:
        starts = line.startswith("Fatal Python error:")
        inside = starts or (inside and not line.startswith("{"))
        if starts or not inside:
            yield line


def readable(line: str) -> str:
    """A JSON log line as readable text; any other line as it is."""
    if not line.startswith("{"):
        return line
    try:
        entry = json.loads(line)
    except ValueError:
        return line
    if not isinstance(entry, dict) or "event" not in entry:
        return line
    facts = " ".join(f"{name}={value}" for name, value in entry.items() if name not in _NOT_SHOWN)
    return f"{entry.get('level', 'info')}: {entry['event']} {facts}".rstrip()


def is_noise(line: str) -> bool:
    """Whether TensorFlow writes this line in every process."""
    return _NOISE.match(line) is not None


class NewLines:
    """New lines in files of a folder.

    Args:
        folder: where the files are. Their current content is not new.
        patterns: of their names; by default those of what user code prints.
    """

    def __init__(self, folder: Path, patterns: Sequence[str] = PRINTED) -> None:
        self._folder = folder
        self._patterns = patterns
        self._read: dict[Path, int] = {path: path.stat().st_size for path in self._files()}

    def take(self) -> list[tuple[str, str]]:
        """(process, line) for each complete line since the last call."""
        found = []
        for path in self._files():
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                piece = file.read(READ_BYTES_MAX)
            # A line longer than a piece is shown in parts.
            complete = len(piece) if len(piece) == READ_BYTES_MAX else piece.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + complete
            lines = piece[:complete].decode(errors="replace").splitlines()
            found += [(path.stem, line) for line in lines]
        return found

    def _files(self) -> list[Path]:
        return sorted(path for pattern in self._patterns for path in self._folder.glob(pattern))
