"""Shows a running job: messages, and the progress as a block below them in a terminal, as plain lines elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.cli.display.consoles import JobConsole, move_output, wrapped
from elasticdl.master.core import State
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import PodName
from elasticdl.shared.process.clock import Clock
from elasticdl.shared.words import stopwatch
from elasticdl.views.event_messages import EventMessages
from elasticdl.views.history import metrics_text
from elasticdl.views.progress import ProgressSnapshot, Rate, progress_snapshot, records_of

OUTPUT = (1, 2)
"""Descriptors of standard output and standard error."""
PLAIN_EVERY_S = 5.0
"""Minimum seconds between two progress lines outside of a terminal."""
_LABELS: Mapping[JobState, str] = {
    JobState.STARTING: "starting",
    JobState.TRAINING: "training",
    JobState.CLOSING: "finishing",
    JobState.STOPPING: "stopping",
    JobState.SUCCEEDED: "succeeded",
    JobState.FAILED: "failed",
    JobState.STOPPED: "stopped",
}


class JobView:
    """What the user sees of a running job; ``live``: whether a terminal shows the progress as a block."""

    def __init__(self, clock: Clock, *, live: bool = True) -> None:
        self.clock = clock
        self.console = JobConsole()
        self._terminals = [descriptor for descriptor in OUTPUT if os.isatty(descriptor)]
        has_block = live and self.console.is_terminal and not self.console.is_dumb_terminal
        self._view: TerminalView | PlainView = TerminalView(self.console) if has_block else PlainView(self.console)
        self._messages = EventMessages()
        self._rate = Rate()
        self._only_past = False

    def print_line(self, line: str) -> None:
        """Print a message."""
        self._view.print_line(line)

    def on_start(self, state: State) -> None:
        """Skip messages about what happened before."""
        self._messages.skip(state)
        self._only_past = state.seq > 0

    def on_record(self, record: LogRecord, state: State) -> None:
        """Print the messages that follow from a record."""
        self._only_past = False
        for line in self._messages.lines(record, state):
            self._view.print_line(line)

    def show(self, state: State, heartbeats: Mapping[PodName, Heartbeat], goodput: float | None) -> None:
        """Show the progress; called several times a second."""
        if not self._only_past:  # Progress and rate at the end of an earlier run would be misleading.
            now_s = self.clock.now()
            rate = self._rate.update(now_s, records_of(state))
            self._view.update(replace(progress_snapshot(state, heartbeats, now_s, rate), goodput=goodput))

    def move_to(self, log: Path, descriptors: Sequence[int] | None = None) -> None:
        """Continue in a file; ``descriptors``: what is moved; by default what was connected to a terminal."""
        self._view.close()
        move_output(log, self._terminals if descriptors is None else descriptors)
        self.console = JobConsole()
        self._view = PlainView(self.console)

    def close(self) -> None:
        """The job has ended. Messages stay on the screen, the progress block does not."""
        self._view.close()


class TerminalView:
    """Messages, and below them a block with the progress."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def print_line(self, line: str) -> None:
        """Print a message above the block."""
        self._console.print(Text(wrapped(line, self._console)), soft_wrap=True)

    def update(self, progress: ProgressSnapshot) -> None:
        """Redraw the block."""
        self._live.update(_block(progress), refresh=True)

    def close(self) -> None:
        """Remove the block."""
        self._live.stop()


class PlainView:
    """Messages and progress lines, for pipes and files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = (JobState.STARTING, -PLAIN_EVERY_S, 0)
        self._waiting = ""

    def print_line(self, line: str) -> None:
        """Print a message."""
        self._console.print(Text(line), soft_wrap=True)

    def update(self, progress: ProgressSnapshot) -> None:
        """Print a progress line if the job has made progress, at most every ``PLAIN_EVERY_S`` seconds."""
        state, elapsed_s, records = self._shown
        moved = progress.records != records and progress.elapsed_s >= elapsed_s + PLAIN_EVERY_S
        if progress.state is not state or moved:
            self._shown = (progress.state, progress.elapsed_s, progress.records)
            self.print_line(progress_line(progress))
        elif progress.waiting != self._waiting and progress.elapsed_s >= elapsed_s + PLAIN_EVERY_S:
            self._waiting = progress.waiting
            if progress.waiting:
                self.print_line(f"[{stopwatch(progress.elapsed_s)}] {progress.waiting}")

    def close(self) -> None:
        """Does nothing."""


def progress_line(progress: ProgressSnapshot) -> str:
    """The progress in one line."""
    parts = [f"[{stopwatch(progress.elapsed_s)}] {_label(progress)}"]
    if progress.batches[1]:
        parts += [f"epoch {progress.epoch[0]}/{progress.epoch[1]}"] if progress.epoch[1] else []
        parts.append(f"batch {progress.batches[0]:,}/{progress.batches[1]:,}")
    if progress.records_per_s:
        parts.append(_speed(progress))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4f}")
    if progress.goodput is not None:
        parts.append(_goodput(progress))
    parts.append(f"workers {progress.workers[0]}/{progress.workers[1]}")
    parts.append(_servers(progress))
    parts.append(f"queue {progress.queue[0]} ({progress.queue[1]} in progress)")
    return "  ".join(parts)


def _speed(progress: ProgressSnapshot) -> str:
    return f"{progress.records_per_s:,.0f} {'batches' if progress.counts_batches else 'records'}/s"


def _servers(progress: ProgressSnapshot) -> str:
    if progress.ring is None:
        return f"ps {progress.ps[0]}/{progress.ps[1]}"
    ring = f"ring of {progress.ring}" if progress.ring else "no ring"
    running, wanted = progress.ps
    return f"{ring}  ps {running}/{wanted}" if wanted else ring


def _block(progress: ProgressSnapshot) -> Group:
    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(
        Text(_label(progress), style="bold"),
        ProgressBar(total=1.0, completed=progress.done, width=30),
        Text(f"{progress.done:4.0%}"),
        Text(f"epoch {progress.epoch[0]}/{progress.epoch[1]}" if progress.epoch[1] else ""),
        Text(_speed(progress) if progress.records_per_s else ""),
        Text("" if progress.loss is None else f"loss {progress.loss:.4f}"),
        Text(stopwatch(progress.elapsed_s), style="dim"),
    )
    lines: list[RenderableType] = [bar]
    below = Table.grid(padding=(0, 1), expand=False)
    below.add_row(
        Text(f"workers {progress.workers[0]}/{progress.workers[1]}", style="dim"),
        Text(_servers(progress), style="dim"),
        Text(f"queue {progress.queue[0]} ({progress.queue[1]} in progress)", style="dim"),
        Text(_goodput(progress), style="dim"),
        Text(_metrics(progress), style="dim"),
    )
    lines.append(below)
    if progress.waiting:
        lines.append(Text(progress.waiting, style="dim"))
    return Group(*lines)


def _label(progress: ProgressSnapshot) -> str:
    if progress.state in (JobState.TRAINING, JobState.CLOSING) and not progress.kind.trains:
        return progress.kind.working
    return _LABELS[progress.state]


def _goodput(progress: ProgressSnapshot) -> str:
    if progress.goodput is None:
        return ""
    return f"goodput {progress.goodput:.0%}{' since the resume' if progress.is_resumed else ''}"


def _metrics(progress: ProgressSnapshot) -> str:
    return f"{metrics_text(progress.metrics)} ({progress.metrics_of})" if progress.metrics else ""
