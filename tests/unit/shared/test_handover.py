"""A process that waits gets its environment through a named pipe; the launcher learns if none waits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from elasticdl.shared.process.fork_server import Handover, WaitingProcess

ENVIRONMENT = {"PATH": "/bin", "TEXT": "two\nlines = ö"}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_the_environment_arrives(pipe: Path) -> None:
    handover = Handover(pipe)
    assert WaitingProcess(pid=0, pipe=pipe).send(ENVIRONMENT)
    assert handover.wait() == ENVIRONMENT


def test_a_process_that_died_gets_none(pipe: Path) -> None:
    assert not WaitingProcess(pid=0, pipe=pipe).send(ENVIRONMENT)


def test_an_environment_that_the_pipe_can_not_hold_is_not_sent(pipe: Path) -> None:
    handover = Handover(pipe)
    assert not WaitingProcess(pid=0, pipe=pipe).send({"LARGE": "x" * (1 << 21)})
    handover.close()
