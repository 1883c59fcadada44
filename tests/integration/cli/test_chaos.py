"""``elasticdl chaos`` kills real processes."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

from elasticdl.cli.commands.chaos import Rate, kill

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def processes() -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Two ps that can be killed."""
    made = {name: subprocess.Popen(SLEEP) for name in ("ps-0", "ps-1")}
    yield made
    for process in made.values():
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("targets", "kinds", "names"),
    [
        (("ps", "ps"), ["ps", "ps"], ["ps-0", "ps-1"]),
        (("all-ps", "ps"), ["all-ps"], ["ps-0", "ps-1"]),
        (("worker", "master"), [], []),
        (("worker", "all-ps"), ["all-ps"], ["ps-0", "ps-1"]),
    ],
)
def test_no_process_is_killed_twice_and_only_running_ones_count(
    processes: dict[str, subprocess.Popen[bytes]], targets: tuple[str, ...], kinds: list[str], names: list[str]
) -> None:
    def living(target: str) -> Mapping[str, int]:
        return {name: process.pid for name, process in processes.items()} if target.endswith("ps") else {}

    hit, killed = kill(Rate(targets=targets, mean_s=1.0), living, random.Random(1))
    assert (hit, sorted(killed)) == (kinds, names)
    for name in killed:
        assert processes[name].wait() == -signal.SIGKILL
    assert all(process.poll() is None for name, process in processes.items() if name not in killed)
