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
from elasticdl.worker.shutdown import Stop, catch_signals, watch
stop = Stop()
watch(catch_signals(), stop, grace_s=0.2, goodbye=lambda: print("goodbye", flush=True))
print("ready", flush=True)
if sys.argv[1] == "quick":
    stop.wait(30)
    print("finished", stop.reason, flush=True)
    stop.done()
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
def test_the_loop_learns_of_a_signal_and_ends_by_itself(number: signal.Signals) -> None:
    assert run("quick", number) == (0, [f"finished {number.name}"])


def test_a_batch_that_takes_too_long_is_abandoned_with_a_goodbye() -> None:
    exit_code, lines = run("hung", signal.SIGTERM)
    assert exit_code == 0
    assert lines[-1] == "goodbye"
