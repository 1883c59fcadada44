"""The output of a command in scripts and in notebooks."""

from __future__ import annotations

import pytest

from elasticdl.api.commands import Output
from elasticdl.cli.display.live import progress_line
from elasticdl.master.core import State
from elasticdl.views.progress import progress_snapshot


class Cell:
    """A notebook's cell, with the calls of IPython's ``display`` and of the handle that it returns."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def display(self, content: dict[str, str], *, raw: bool, display_id: bool) -> Cell:
        assert raw and display_id
        self.calls.append(("display", content["text/plain"]))
        return self

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.calls.append(("update", content["text/plain"]))


def progress(elapsed_s: float) -> str:
    return progress_line(progress_snapshot(State(), {}, elapsed_s, 0.0))


def test_progress_is_one_line_of_a_notebook_that_changes(capsys: pytest.CaptureFixture[str]) -> None:
    cell = Cell()
    output = Output(cell.display)
    for line in ("Reading data", progress(1), "[0:02] worker-0 was killed. Restarting it.", progress(9)):
        output.line(f"{line}\n")
    assert [kind for kind, _ in cell.calls] == ["display", "update"]
    assert [text for _, text in cell.calls] == [progress(1), progress(9)]
    assert capsys.readouterr().out == "Reading data\n[0:02] worker-0 was killed. Restarting it.\n"


def test_a_script_prints_all_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output()
    for line in (progress(1), progress(9)):
        output.line(f"{line}\n")
    assert capsys.readouterr().out == f"{progress(1)}\n{progress(9)}\n"
