"""Jobs that outlive the terminal in which they were started."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading

import pytest
from tests.deadline import DEADLINE_S
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, SLOW, write_data, write_model

FLAGS = ["--model_def=model.py", "--training_data=data", "--minibatch_size=32", "--num_workers=1"]


@pytest.fixture
def slow_job(elastic: Elastic) -> list[str]:
    """Flags of a job that takes its time."""
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    return FLAGS


class Terminal:
    """A terminal with one command, which closing it hangs up."""

    def __init__(self, elastic: Elastic, *arguments: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli", *arguments],
            cwd=elastic.folder,
            env=elastic.full_environment() | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self._shown = ""
        self._closing = self._has_ended = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str) -> None:
        with self._more:
            self._more.wait_for(lambda: text in self._shown or self._has_ended, DEADLINE_S)
        assert text in self._shown, self._shown

    def close(self) -> None:
        """Close the window. The reader has the terminal open until its next byte."""
        self._closing = True
        self._reader.join(DEADLINE_S)

    def _read(self) -> None:
        while not self._closing:
            try:
                piece = os.read(self._master, 4096).decode(errors="replace")
            except OSError:  # No process has the terminal open any more.
                break
            with self._more:
                self._shown += piece
                self._more.notify_all()
        os.close(self._master)
        with self._more:
            self._has_ended = True
            self._more.notify_all()


def test_closing_the_terminal_leaves_the_job_running(elastic: Elastic, slow_job: list[str]) -> None:
    terminal = Terminal(elastic, "train", *slow_job)
    terminal.wait_for("workers 1/1")
    terminal.wait_for("records/s")
    terminal.close()
    with elastic.start("attach", elastic.job) as attached:
        attached.wait_for_progress()
        elastic.remove_delay()
        assert attached.wait() == 0, attached.output
        attached.wait_for("audit +exact")
    assert terminal.process.wait(DEADLINE_S) == 0
    log = (elastic.jobs / elastic.job / "logs" / "launcher.log").read_text()
    assert log.startswith("The terminal was closed. The job continues in the background.\n")
    assert "audit " in log and "\x1b" not in log


def test_a_job_in_the_background_can_be_left_and_seen_again(elastic: Elastic, slow_job: list[str]) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *slow_job, "--detach", "--report", str(report)) as started:
        assert started.wait() == 0, started.output
        started.wait_for(f"elasticdl attach {elastic.job}\n")
    with elastic.start("attach", elastic.job) as attached:
        attached.wait_for_progress()
        attached.process.send_signal(signal.SIGINT)
        assert attached.wait() == 130
        attached.wait_for("The job continues.")
    elastic.remove_delay()
    seen = elastic.run("attach", elastic.job)
    assert seen.exit_code == 0, seen.output
    elastic.wait_until_gone()
    assert json.loads(report.read_text())["audit"]["exact"] is True
    again = elastic.run("resume", elastic.job, "--num_epochs=2", "--detach")
    assert again.exit_code == 0, again.output
    assert elastic.run("attach", elastic.job).exit_code == 0
    elastic.wait_until_gone()


def test_a_job_that_is_refused_does_not_go_to_the_background(elastic: Elastic) -> None:
    write_model(elastic.folder, LINEAR.replace("Input((3,))", "Input((7,))"))
    write_data(elastic.folder)
    refused = elastic.run("train", *FLAGS, "--detach")
    assert refused.exit_code == 1, refused.output
    assert "Error: " in refused.output and "background" not in refused.output
    assert not list(elastic.jobs.glob("*"))
