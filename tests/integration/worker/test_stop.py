"""SIGTERM, with real processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from tests.deadline import DEADLINE_S

PROGRAM = """
import sys, threading
import numpy  # starts threads that take signals like any other
from elasticdl.worker.main import catch_signals, watch
asked, ended = threading.Event(), threading.Event()
def stop(reason):
    print("stop", reason, flush=True)
    asked.set()
watch(catch_signals(), stop=stop, ended=ended, limit_s=0.5)
print("ready", flush=True)
asked.wait(30)
if sys.argv[1] == "quick":
    ended.set()
    print("ended", flush=True)
else:
    threading.Event().wait(30)
"""


def run(how: str, number: signal.Signals) -> tuple[int, list[str]]:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, how], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        output, _ = child.communicate(timeout=DEADLINE_S)
        return child.returncode, output.splitlines()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_worker_is_told_of_a_signal_and_ends_by_itself(number: signal.Signals) -> None:
    assert run("quick", number) == (0, [f"stop {number.name}", "ended"])


def test_a_process_that_does_not_end_in_time_is_ended() -> None:
    exit_code, lines = run("hung", signal.SIGTERM)
    assert exit_code == 0
    assert lines[0] == "stop SIGTERM"
    assert "ended" not in lines
