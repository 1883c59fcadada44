"""What docs/subjects.md says about NATS' own tools: each of its commands is run, with the real program."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.contract.bus.conftest import SETTINGS
from tests.contract.bus.values import fact, task
from tests.contract.servers import nats_cli
from tests.deadline import DEADLINE_S

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.nats_bus import connect
from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.events import TaskTaken
from elasticdl.shared.names import Incarnation, JobId, PodName, Purpose, Service

PAGE = (Path(__file__).parents[3] / "docs/subjects.md").read_text()
COMMANDS = re.findall(r"^    (nats .*)$", PAGE, re.MULTILINE)
DOCUMENTED = "digits-290fe7"
PROGRAM = nats_cli.binary()
HEARTBEAT_S = 0.1
"""As a worker, this test sends heartbeats again and again: `nats` does not say when it listens."""

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no NATS command line on this machine: make nats-cli")


@pytest.fixture
async def bus(nats_url: str, job: JobId) -> AsyncIterator[Bus]:
    """A job with an event, a task that a worker has taken, and one that waits."""
    bus = await connect(nats_url, job, SETTINGS)
    taken = TaskTaken(task=task(3).task, dispatch=1, attempt=1, reply="train.1.1.1")
    await bus.log.append(fact(1, event=taken))
    await bus.tasks.publish([(task(17), False), (task(18), False)])
    assert await bus.tasks.take([Purpose.TRAIN])
    yield bus
    await bus.close()


async def run(command: str, url: str, job: JobId) -> tuple[int, str]:
    """Run a line of the page; what ``nats`` prints may go through ``elasticdl``."""
    program, _, decode = command.replace(DOCUMENTED, job).partition(" | ")
    words = [str(PROGRAM), *shlex.split(program)[1:], f"--server={url}"]
    if " view " in command:
        return await asyncio.to_thread(on_a_terminal, words)
    done = await asyncio.to_thread(subprocess.run, words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
    if not decode:
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == 0, done.stderr
    decoder = [sys.executable, "-m", "elasticdl.cli", *shlex.split(decode)[1:]]
    text = await asyncio.to_thread(subprocess.run, decoder, input=done.stdout, capture_output=True, check=False)
    return text.returncode, (text.stdout + text.stderr).decode()


def on_a_terminal(words: list[str]) -> tuple[int, str]:
    """Run a command that wants a terminal."""
    ours, its = pty.openpty()
    process = subprocess.Popen(words, stdin=its, stdout=its, stderr=its)
    os.close(its)
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    return process.wait(DEADLINE_S), shown.decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # The last process with this terminal has ended.
        return b""


async def test_the_commands_of_the_page_show_a_job(bus: Bus, nats_url: str, job: JobId) -> None:
    told = {}
    for command in COMMANDS:
        heartbeats = asyncio.create_task(_beat(bus)) if "nats sub" in command else None
        code, told[command] = await run(command, nats_url, job)
        if heartbeats:
            heartbeats.cancel()
        assert code == 0, (command, told[command])
    assert len(told) >= 10
    text = "\n".join(told.values())
    assert f"EDL-{job}-EVENTS" in told["nats stream ls"]
    assert "WorkQueue" in told[f"nats stream info EDL-{DOCUMENTED}-TASKS"]
    assert re.search(r"Outstanding Acks: 1\b", text)
    assert "TaskTaken task=train 3 dispatch=1 attempt=1" in text
    assert "TaskMessage task=train 17 dispatch=1 term=1" in text
    assert "worker-0 Heartbeat service=worker" in text


@pytest.mark.usefixtures("bus")
async def test_the_queue_can_be_read_but_not_viewed(nats_url: str, job: JobId) -> None:
    code, shown = await run(f"nats stream view EDL-{DOCUMENTED}-TASKS", nats_url, job)
    assert (code, shown.split(": ", 2)[-1].strip()) == (
        1,
        "work queue retention streams can only be paged if direct access is allowed",
    )
    assert shown.split(": ", 2)[-1].strip() in " ".join(PAGE.split())


async def _beat(bus: Bus) -> None:
    beat = Heartbeat(
        service=Service.WORKER, name=PodName("worker-0"), incarnation=Incarnation("i"), time_s=1.0, metrics={}
    )
    while True:
        await bus.signals.send_heartbeat(beat)
        await asyncio.sleep(HEARTBEAT_S)
