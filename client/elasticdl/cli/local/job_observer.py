"""Shows a running job to the user, and keeps ``job.json`` and ``history.jsonl`` up to date."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace

from elasticdl.cli.display.event_messages import EventMessages
from elasticdl.cli.display.history import history_lines, read_history
from elasticdl.cli.display.live import View
from elasticdl.cli.display.progress_snapshot import Rate, progress_snapshot, records_of
from elasticdl.cli.jobs.run_directory import JobRecord, LogEnd, RunDirectory, replace_text
from elasticdl.cli.local.processes.logs import NewLines
from elasticdl.master.core import State
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import PodName

SAVE_S = 1.0
"""Minimum seconds between two writes of the job's files while it runs."""


class JobObserver:
    """The observer of a local job.

    Args:
        run: the job's folder.
        record: the current content of ``job.json``.
        view: where the user looks.
    """

    def __init__(self, run: RunDirectory, record: JobRecord, view: View) -> None:
        self._run = run
        self._record = record
        self._view = view
        self._messages = EventMessages()
        self._rate = Rate()
        self._printed = NewLines(run.logs)
        self._only_past = False
        self._history = ""
        self._former = read_history(run.history)
        self._log_end = self._log_end_saved = LogEnd()
        self._saved_s = -SAVE_S

    def update_record(self, **changes: str | Mapping[str, int]) -> None:
        """Change ``job.json``.

        Raises:
            PermanentError: the file can't be written.
        """
        self._record = replace(self._record, **changes)  # type: ignore[arg-type]  # names and types are the caller's
        self._run.write(self._record)

    def on_message(self, line: str) -> None:
        """Print a line of the launcher."""
        self._view.print_line(line)

    def on_start(self, state: State) -> None:
        """Skip messages about what happened before."""
        self._messages.skip(state)
        self._only_past = state.seq > 0

    def on_record(self, record: LogRecord, state: State) -> None:
        """Print the messages that follow from a record."""
        self._log_end = LogEnd(seq=record.seq, time_s=record.envelope.time_s)
        self._only_past = False
        for line in self._messages.lines(record, state):
            self._view.print_line(line)
        if state.job_state.value != self._record.state:
            # The launcher itself notices a full disk and ends the job; this must not prevent a clean end.
            with contextlib.suppress(PermanentError):
                self.update_record(state=state.job_state.value)

    def on_tick(
        self, state: State, heartbeats: Mapping[PodName, Heartbeat], pids: Mapping[str, int], goodput: float | None
    ) -> None:
        """Show the progress, and what user code printed."""
        if pids != self._record.pids:
            with contextlib.suppress(PermanentError):
                self.update_record(pids=pids)
        self.show_printed()
        if not self._only_past:  # Progress and rate at the end of an earlier run would be misleading.
            now_s = time.time()
            rate = self._rate.update(now_s, records_of(state))
            self._view.update(replace(progress_snapshot(state, heartbeats, now_s, rate), goodput=goodput))
        if time.monotonic() >= self._saved_s + SAVE_S:
            self._saved_s = time.monotonic()
            self.save_history(state)

    def show_printed(self) -> None:
        """Print what user code printed since the last call."""
        for pod, line in self._printed.take():
            self._view.print_line(f"{pod} | {line}")

    def save_history(self, state: State) -> None:
        """Bring ``history.jsonl`` and the recorded end of the log up to date."""
        if self._log_end != self._log_end_saved:
            self._run.write_log_end(self._log_end)
            self._log_end_saved = self._log_end
        lines = history_lines(state, self._former)
        if lines != self._history:
            self._history = lines
            with contextlib.suppress(OSError):
                replace_text(self._run.history, lines)
