"""Results of folds that are kept in files, for logs that have not changed since.

A result belongs to the content of a log and to the program that has folded it. Losing one costs only time, so nothing
here fails: a file that can't be read or written, or is damaged, is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import elasticdl.master.core
import elasticdl.shared.messages
import elasticdl.views
from elasticdl.shared.bus.ports import LogReader
from elasticdl.shared.bus.reading import record_at
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.names import JobId, TaskId
from elasticdl.shared.storage.atomic import replacing
from elasticdl.views.files.exported_log import ExportedLog
from elasticdl.views.task_times import TaskTime
from elasticdl.views.wall_time.values import WallTime, wall_time_of_plain, wall_time_to_plain

T = TypeVar("T")
RECORDS_MIN = 20_000
"""Results of shorter logs are not kept: they take less than a third of a second."""
FILES_MAX = 64
"""Of more files, those that were used least recently are removed."""
_PACKAGES = (elasticdl.master.core, elasticdl.shared.messages, elasticdl.views)
"""What a result depends on."""


def default_folder(environment: Mapping[str, str]) -> Path:
    """The folder of kept results in the user's cache folder."""
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl" / "views"


class KeptResults:
    """Results of folds of one log as it is now.

    Args:
        folder: where they are; it need not exist.
        content: identifies the log and what is in it; empty: nothing is kept.
    """

    def __init__(self, folder: Path, content: str) -> None:
        self._folder = folder
        self._content = content

    @classmethod
    async def of(cls, folder: Path, log: LogReader, job: JobId) -> KeptResults:
        """Those of a log."""
        last = await log.last_seq()
        if last < RECORDS_MIN:
            return cls(folder, "")
        if isinstance(log, ExportedLog):
            return cls(folder, log.content)
        record = await record_at(log, last)
        return cls(folder, f"{job} {last} {record.envelope.id}" if record else "")

    def read(self, name: str, of_bytes: Callable[[bytes], T]) -> T | None:
        """A result, or None; ``of_bytes``: the inverse of what made its bytes."""
        if not self._content:
            return None
        path = self._path(name)
        try:
            found = of_bytes(path.read_bytes())
            os.utime(path)
        except (OSError, ProtocolError, ValueError, LookupError, TypeError):  # Not there, or damaged.
            return None
        return found

    def write(self, name: str, data: bytes) -> None:
        """Keep a result."""
        if not self._content:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with replacing(self._path(name), mode=0o600, sync=False) as file:
                file.write(data)
            files = sorted(self._folder.iterdir(), key=lambda each: each.stat().st_mtime)
            for path in files[:-FILES_MAX]:
                path.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        key = hashlib.sha256(f"{self._content}\n{_program()}".encode()).hexdigest()
        return self._folder / f"{key[:32]}.{name}"


@cache
def _program() -> str:
    """Identifies the code that folds logs."""
    found = []
    for package in _PACKAGES:
        for folder in package.__path__:
            for path in sorted(Path(folder).rglob("*.py")):
                facts = path.stat()
                found.append(f"{path} {facts.st_size} {facts.st_mtime_ns}")
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def wall_time_to_bytes(found: WallTime, texts: Mapping[int, str]) -> bytes:
    """Where the time went, with a line for each event that is named, as a result that can be kept."""
    return json.dumps({"found": wall_time_to_plain(found), "texts": list(texts.items())}).encode()


def wall_time_of_bytes(data: bytes) -> tuple[WallTime, dict[int, str]]:
    """Inverse of ``wall_time_to_bytes``."""
    values: dict[str, Any] = json.loads(data)
    return wall_time_of_plain(values["found"]), dict(values["texts"])


def task_times_to_bytes(times: Mapping[TaskId, TaskTime]) -> bytes:
    """The times of tasks as a result that can be kept."""
    rows = [(number, each.worker, each.seconds, each.finishes, each.seq) for number, each in times.items()]
    return json.dumps(rows).encode()


def task_times_of_bytes(data: bytes) -> dict[TaskId, TaskTime]:
    """Inverse of ``task_times_to_bytes``."""
    return {
        TaskId(number): TaskTime(worker=worker, seconds=seconds, finishes=finishes, seq=seq)
        for number, worker, seconds, finishes, seq in json.loads(data)
    }
