"""The files that child processes write: their last log lines, and what user code prints."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

TAIL_LINES = 30
TAIL_BYTES_MAX = 32_768
READ_BYTES_MAX = 65_536
"""What is read of one file at a time; a flood of prints is shown in pieces."""
_NOT_SHOWN = frozenset({"event", "level", "timestamp", "service", "job", "pod", "incarnation", "exception"})


def tail(path: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file, structured ones made readable; empty when there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES_MAX))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    told = list(_without_stacks(text.splitlines()))
    return "\n".join(readable(line) for line in told[-lines:])


def last_word(path: Path, lines: int) -> str:
    """What a process said when it refused to go on: its last error and what follows; else its last lines."""
    told = tail(path).splitlines()
    last = max((number for number, line in enumerate(told) if line.startswith("error: ")), default=0)
    return "\n".join(told[max(last, len(told) - lines) :])


def _without_stacks(lines: list[str]) -> Iterator[str]:
    """Leave out the interpreter's own stack of a crash: the file has it, and users can do nothing with it."""
    inside = False
    for line in lines:
        starts = line.startswith("Fatal Python error:")
        inside = starts or (inside and not line.startswith("{"))
        if starts or not inside:
            yield line


def readable(line: str) -> str:
    """A JSON log line as people read it, any other line as it is."""
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


class PrintedLines:
    """New lines in the files that hold what user code prints, ``*.out`` of a folder.

    Args:
        folder: where the files are; what they hold now is not new.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {path: path.stat().st_size for path in folder.glob("*.out")}

    def take(self) -> list[tuple[str, str]]:
        """(process, line) for every complete line since the last call."""
        found = []
        for path in sorted(self._folder.glob("*.out")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                piece = file.read(READ_BYTES_MAX)
            # A line longer than a whole piece is shown in parts rather than never.
            complete = len(piece) if len(piece) == READ_BYTES_MAX else piece.rfind(b"\n") + 1
            self._read[path] = self._read.get(path, 0) + complete
            lines = piece[:complete].decode(errors="replace").splitlines()
            found += [(path.stem, line) for line in lines]
        return found
