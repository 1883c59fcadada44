"""A planner that writes what it sees and decides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from elasticdl.controller.core import Changes, JobTarget, Planner, Policy, Targets, View
from elasticdl.controller.history.log_file import LogFile
from elasticdl.controller.history.records import changes_to_json, header_line, record_line


class RecordingPlanner:
    """Decides as ``Planner`` does, and appends what was new and which targets have changed to a file.

    Args:
        on_error: called once with the reason why nothing is written any more. Decisions never fail because of the log.
    """

    def __init__(self, path: Path, on_error: Callable[[str], None], policy: Policy | None = None) -> None:
        self._planner = Planner(policy)
        self._policy = policy or Policy()
        self._path = path
        self._on_error = on_error
        self._file: LogFile | None = None
        self._targets: dict[str, JobTarget] = {}
        self._is_broken = False

    @property
    def view(self) -> View:
        """What it knows."""
        return self._planner.view

    def decide(self, changes: Changes, now_s: float) -> Targets:
        """See ``Planner.decide``."""
        if self._is_broken:
            return self._planner.decide(changes, now_s)
        is_first = self._file is None
        seen = {} if is_first else changes_to_json(changes, self.view)
        targets = self._planner.decide(changes, now_s)
        if is_first:  # A file begins with the whole view.
            view = self.view
            seen = changes_to_json(View().changes_to(view.cluster(), view.jobs.values()), View())
        found = {target.job: target for target in targets.jobs}
        known = {} if is_first else self._targets
        new: dict[str, JobTarget | None] = {
            job: target for job, target in found.items() if known.get(job) is not target and known.get(job) != target
        }
        new.update(dict.fromkeys(known.keys() - found.keys()))
        self._targets = found
        if seen or new:
            self._write(record_line(now_s, seen, new))
        return targets

    def close(self) -> None:
        """Write the end of the file."""
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            if not self._is_broken:
                self._on_error(f"{self._path} can't be written: {error.strerror or error}")

    def _write(self, line: str) -> None:
        try:
            if self._file is None:
                self._file = LogFile(self._path)
                self._file.append(header_line(self._policy))
            self._file.append(line)
            if self._file.is_full:
                self._file.close()
                self._file = None
        except OSError as error:
            self._is_broken = True
            self._on_error(f"{self._path} can't be written: {error.strerror or error}")
