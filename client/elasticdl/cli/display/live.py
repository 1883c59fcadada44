"""Live progress: one line that moves at the bottom of a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from elasticdl.cli.display.progress_snapshot import Picture
from elasticdl.shared.messages.commands import JobState

PLAIN_EVERY_S = 5.0
"""Without a terminal progress is told no more often than this."""
_BUSY: Mapping[JobState, str] = {
    JobState.STARTING: "starting",
    JobState.TRAINING: "training",
    JobState.CLOSING: "closing",
    JobState.STOPPING: "stopping",
    JobState.SUCCEEDED: "done",
    JobState.FAILED: "failed",
    JobState.STOPPED: "stopped",
}


class View(Protocol):
    """Where a running job is shown."""

    def say(self, line: str) -> None:
        """A line that stays."""
        ...

    def show(self, picture: Picture) -> None:
        """How the job looks now; called several times a second."""
        ...

    def close(self) -> None:
        """The job has ended; what stays on the screen stays."""
        ...


def open_view(console: Console) -> View:
    """The view that fits where output goes."""
    return TerminalView(console) if console.is_terminal else PlainView(console)


class TerminalView:
    """A moving block below the lines that stay."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def say(self, line: str) -> None:
        """A line above the moving block."""
        self._console.print(Text(line))

    def show(self, picture: Picture) -> None:
        """Redraw the moving block."""
        self._live.update(_block(picture), refresh=True)

    def close(self) -> None:
        """Take the moving block away."""
        self._live.stop()


class PlainView:
    """Lines only, for pipes and files."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = (JobState.STARTING, -PLAIN_EVERY_S, 0)
        self._waiting = ""

    def say(self, line: str) -> None:
        """One line."""
        self._console.print(Text(line), soft_wrap=True)

    def show(self, picture: Picture) -> None:
        """One line now and then, when something has moved."""
        state, elapsed_s, records = self._told
        moved = picture.records != records and picture.elapsed_s >= elapsed_s + PLAIN_EVERY_S
        if picture.state is not state or moved:
            self._told = (picture.state, picture.elapsed_s, picture.records)
            self.say(progress_line(picture))
        elif picture.waiting != self._waiting and picture.elapsed_s >= elapsed_s + PLAIN_EVERY_S:
            self._waiting = picture.waiting
            if picture.waiting:
                self.say(f"[{_clock(picture.elapsed_s)}] {picture.waiting}")

    def close(self) -> None:
        """Nothing is left to do."""


def progress_line(picture: Picture) -> str:
    """Everything in one line."""
    parts = [f"[{_clock(picture.elapsed_s)}] {_BUSY[picture.state]}"]
    if picture.batches[1]:
        parts.append(f"epoch {picture.epoch[0]}/{picture.epoch[1]}")
        parts.append(f"batch {picture.batches[0]:,}/{picture.batches[1]:,}")
    if picture.records_per_s:
        parts.append(f"{picture.records_per_s:,.0f} records/s")
    if picture.loss is not None:
        parts.append(f"loss {picture.loss:.4f}")
    if picture.goodput is not None:
        parts.append(f"goodput {picture.goodput:.0%}")
    parts.append(f"workers {picture.workers[0]}/{picture.workers[1]}")
    parts.append(f"ps {picture.ps[0]}/{picture.ps[1]}")
    parts.append(f"queue {picture.queue[0]} ({picture.queue[1]} in hand)")
    return "  ".join(parts)


def _block(picture: Picture) -> Group:
    bar = Table.grid(padding=(0, 1), expand=False)
    bar.add_row(
        Text(_BUSY[picture.state], style="bold"),
        ProgressBar(total=1.0, completed=picture.done, width=30),
        Text(f"{picture.done:4.0%}"),
        Text(f"epoch {picture.epoch[0]}/{picture.epoch[1]}"),
        Text(f"{picture.records_per_s:,.0f} records/s"),
        Text("" if picture.loss is None else f"loss {picture.loss:.4f}"),
        Text(_clock(picture.elapsed_s), style="dim"),
    )
    lines: list[RenderableType] = [bar]
    below = Table.grid(padding=(0, 1), expand=False)
    below.add_row(
        Text(f"workers {picture.workers[0]}/{picture.workers[1]}", style="dim"),
        Text(f"ps {picture.ps[0]}/{picture.ps[1]}", style="dim"),
        Text(f"queue {picture.queue[0]} ({picture.queue[1]} in hand)", style="dim"),
        Text("" if picture.goodput is None else f"goodput {picture.goodput:.0%}", style="dim"),
        Text(_metrics(picture), style="dim"),
    )
    lines.append(below)
    if picture.waiting:
        lines.append(Text(picture.waiting, style="dim"))
    return Group(*lines)


def _metrics(picture: Picture) -> str:
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in sorted(picture.metrics.items()))
    return f"{numbers} ({picture.metrics_of})" if numbers else ""


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
