"""What the launcher's user sees while a job runs, and what is kept of it in the run directory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace

from elasticdl.cli.display.event_messages import Narrator
from elasticdl.cli.display.history import history_lines, read_history
from elasticdl.cli.display.live import View
from elasticdl.cli.display.progress_snapshot import Rate, picture, records_of
from elasticdl.cli.jobs.run_directory import JobRecord, LogEnd, RunDirectory
from elasticdl.cli.local.logs import PrintedLines
from elasticdl.master.core import State
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.failure_detection.heartbeats import Beat
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import PodName


class Watcher:
    """The audience of a launcher.

    Args:
        run: the job's folder, where the history file and the job's state are kept up to date.
        record: what ``job.json`` says now.
        view: where the user looks.
    """

    def __init__(self, run: RunDirectory, record: JobRecord, view: View) -> None:
        self._run = run
        self._record = record
        self._view = view
        self._narrator = Narrator()
        self._rate = Rate()
        self._printed = PrintedLines(run.logs)
        self._is_past = False
        self._history = ""
        self._former = read_history(run.history)
        self._log_end = self._log_end_noted = LogEnd()

    def note(self, **changes: str | Mapping[str, int]) -> None:
        """Change what ``job.json`` says.

        Raises:
            PermanentError: the file can't be written.
        """
        self._record = replace(self._record, **changes)  # type: ignore[arg-type]  # names and types are the caller's
        self._run.write(self._record)

    def say(self, line: str) -> None:
        """A line of the launcher's own."""
        self._view.say(line)

    def begin(self, state: State) -> None:
        """What is past was told before."""
        self._narrator.skip(state)
        self._is_past = state.seq > 0

    def record(self, record: LogRecord, state: State) -> None:
        """Tell what a record means."""
        self._log_end = LogEnd(seq=record.seq, time_s=record.envelope.time_s)
        self._is_past = False
        for line in self._narrator.lines(record, state):
            self._view.say(line)
        if state.job_state.value != self._record.state:
            # A full disk is noticed and told by the launcher; it must not keep the job from ending well.
            with contextlib.suppress(PermanentError):
                self.note(state=state.job_state.value)

    def tick(self, state: State, beats: Mapping[PodName, Beat], pids: Mapping[str, int], goodput: float | None) -> None:
        """Show where the job stands and what user code has printed."""
        if pids != self._record.pids:
            with contextlib.suppress(PermanentError):
                self.note(pids=pids)
        self.show_printed()
        if not self._is_past:  # A picture of the end of a former run would be wrong, and so would its rate be.
            now_s = time.time()
            rate = self._rate.take(now_s, records_of(state))
            self._view.show(replace(picture(state, beats, now_s, rate), goodput=goodput))
        self.keep_history(state)

    def show_printed(self) -> None:
        """Show what user code has printed since the last time."""
        for pod, line in self._printed.take():
            self._view.say(f"{pod} | {line}")

    def keep_history(self, state: State) -> None:
        """Bring the history file up to date, and what the next resume compares the log with."""
        if self._log_end != self._log_end_noted:
            self._run.write_log_end(self._log_end)
            self._log_end_noted = self._log_end
        lines = history_lines(state, self._former)
        if lines != self._history:
            self._history = lines
            with contextlib.suppress(OSError):
                self._run.history.write_text(lines)
