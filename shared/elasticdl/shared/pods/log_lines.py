"""Lines of the logs of pods: as people read them, and those that explain an exit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from elasticdl.shared.messages.events import ExitCause

REFUSAL_LINES, CRASH_LINES, STACK_LINES = 3, 8, 14
"""Lines that are reported after a process refused to start, crashed, or hung."""
EXPLAINED = frozenset({ExitCause.REFUSED, ExitCause.OWN_FAULT, ExitCause.OUT_OF_MEMORY, ExitCause.HUNG})
"""Causes of exits that the log explains."""
_NOT_SHOWN = frozenset({"event", "level", "timestamp", "service", "job", "pod", "incarnation", "exception"})
_REPORTS = ("info: ", "debug: ")
_NOISE = re.compile(
    r"(\d{4}-\d\d-\d\d [\d:.]+ ?)?[IW](\d{4} [\d:.]+ +\d+| tensorflow/)"
    r"|WARNING: All log messages before absl::InitializeLog|To enable the following instructions: "
)
"""What TensorFlow writes in every process: information and warnings of its C++ code."""


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


def readable_lines(lines: Iterable[str]) -> list[str]:
    """The lines of a log as people read them, without noise and without the interpreter's stack dumps of crashes."""
    return [readable(line) for line in _without_stacks(lines) if not is_noise(line)]


def last_error(lines: Sequence[str], lines_max: int) -> Sequence[str]:
    """The last error and the lines after it, at most ``lines_max``; without an error, the last lines.

    Other threads may write on until the process has ended: what they report that is no problem explains nothing. The
    log may end with something else than that error, such as a traceback.
    """
    last = max((number for number, line in enumerate(lines) if line.startswith("error: ")), default=None)
    if last is None:
        return lines[-lines_max:]
    after = [line for line in lines[last + 1 :] if not line.startswith(_REPORTS)]
    return [lines[last], *after[max(0, len(after) + 1 - lines_max) :]]


def explaining_lines(lines: Sequence[str], cause: ExitCause) -> str:
    """The readable lines at the end of a pod's log that explain its exit; empty where none does or has to."""
    if cause not in EXPLAINED:
        return ""
    if cause is ExitCause.REFUSED:
        found = last_error(lines, REFUSAL_LINES)
        return "" if all(line.startswith(_REPORTS) for line in found) else "\n".join(found)
    if cause is ExitCause.HUNG:
        return "\n".join(last_error(lines, len(lines))[:STACK_LINES])
    latest = lines[-CRASH_LINES:]
    return "\n".join(last_error(lines, CRASH_LINES) if all(line.startswith(_REPORTS) for line in latest) else latest)


def _without_stacks(lines: Iterable[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        starts = line.startswith("Fatal Python error:")
        inside = starts or (inside and not line.startswith("{"))
        if starts or not inside:
            yield line
