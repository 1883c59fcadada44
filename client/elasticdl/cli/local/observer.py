"""The observer of a local job."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from elasticdl.cli.display.live import OUTPUT, JobView
from elasticdl.cli.jobs.run_directory import JobRecord, LogEnd, RunDirectory
from elasticdl.cli.local.processes.logs import NewLines
from elasticdl.master.core import State
from elasticdl.shared.errors import PermanentError
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.names import LAUNCHER, PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.storage.atomic import replace_text
from elasticdl.views.history import history_lines

SAVE_S = 1.0
"""Minimum seconds between two writes of the job's files while it runs."""
Watch = Callable[[State, Mapping[PodName, Heartbeat], float], None]


class JobObserver(JobView):
    """Is called about everything that happens to a local job. It shows the job, and keeps the files of its folder.

    Args:
        accept, watch: see ``RunOptions``.
    """

    def __init__(
        self,
        run: RunDirectory,
        record: JobRecord,
        clock: Clock,
        accept: Callable[[str, str], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(clock, live=accept is None)
        self._run = run
        self._record = record
        self._accept = accept
        self._watch = watch
        self._printed = NewLines(run.logs)
        self._history = ""
        self._log_end = self._log_end_saved = LogEnd()
        self._saved_s = -SAVE_S

    def update_record(self, **changes: str | Mapping[str, int]) -> None:
        """Change ``job.json``."""
        self._record = replace(self._record, **changes)  # type: ignore[arg-type]  # names and types are the caller's
        self._run.write(self._record)

    def on_accepted(self) -> None:
        """The job is on its log and its master was started: leave the terminal, if the job runs in the background."""
        if self._accept:
            self.move_to(self._run.log(LAUNCHER), OUTPUT)
            self._accept(self._run.job, self._run.arguments)

    def on_terminal_closed(self) -> None:
        """The user closed the terminal: continue to print, in the launcher's log."""
        self.move_to(self._run.log(LAUNCHER))
        self.print_line("The terminal was closed. The job continues in the background.")

    def on_record(self, record: LogRecord, state: State) -> None:
        """Print the messages that follow from a record."""
        self._log_end = LogEnd(seq=record.seq, time_s=agreed_s(record.envelope.time_s, state.clock_s))
        super().on_record(record, state)
        if state.job_state.value != self._record.state:
            # The launcher itself notices a full disk and ends the job; this must not prevent a clean end.
            with contextlib.suppress(PermanentError):
                self.update_record(state=state.job_state.value)

    def on_tick(
        self, state: State, heartbeats: Mapping[PodName, Heartbeat], pids: Mapping[str, int], goodput: float | None
    ) -> None:
        """Show the progress, and what user code printed; called several times a second.

        Args:
            pids: process ids of master and NATS server, which are not on the log.
            goodput: batches absorbed by batches computed; None: unknown.
        """
        if pids != self._record.pids:
            with contextlib.suppress(PermanentError):
                self.update_record(pids=pids)
        self.show_printed()
        self.show(state, heartbeats, goodput)
        if self._watch:
            self._watch(state, heartbeats, self.clock.now())
        if time.monotonic() >= self._saved_s + SAVE_S:
            self._saved_s = time.monotonic()
            self.save_history(state)

    def show_printed(self) -> None:
        """Print what user code printed since the last call."""
        for pod, line in self._printed.take():
            self.print_line(f"{pod} | {line}")

    def save_history(self, state: State) -> None:
        """Bring ``history.jsonl`` and the recorded end of the log up to date."""
        if self._log_end != self._log_end_saved:
            self._run.write_log_end(self._log_end)
            self._log_end_saved = self._log_end
        lines = history_lines(state)
        if lines != self._history:
            self._history = lines
            with contextlib.suppress(OSError):
                replace_text(self._run.history, lines)
