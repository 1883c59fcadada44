"""The real process with a real broker: started, killed, started again, asked to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tests.deadline import DEADLINE_S
from tests.integration.service_harness import TOKEN, ServiceHarness
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.servers import weights

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.messages.commands import TakeSnapshot
from elasticdl.shared.messages.events import PsStarted, SnapshotTaken
from elasticdl.shared.messages.registers import decode_register
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import PodName
from elasticdl.shared.storage import to_uri
from elasticdl.worker.ps_client import PsAddress, PsClient, PsDirectory

PS = PodName("ps-0")
RSS_BYTES_MAX = 250 << 20


class PsHarness(ServiceHarness):
    """ServiceHarness whose job has one ps."""

    def resolve(self) -> Mapping[PodName, PsAddress]:
        entry = self.loop.call(self.bus.registers.read(PS))
        if entry is None:
            return {}
        register = decode_register(entry.value)
        return {PS: PsAddress(address=register.address, incarnation=register.incarnation)}

    def await_heartbeat(self) -> Heartbeat:
        async def first(heartbeats: AsyncIterator[Heartbeat]) -> Heartbeat:
            return await anext(heartbeats)

        return self.loop.call(asyncio.wait_for(first(self.bus.signals.heartbeats()), DEADLINE_S))


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[PsHarness]:
    harness = PsHarness(tmp_path, spec(to_uri(tmp_path / "storage")))
    yield harness
    harness.close()


def test_killed_restored_and_asked_to_end(harness: PsHarness) -> None:
    process = harness.ps("ps.log")
    harness.await_event(PsStarted, 1)
    client = PsClient(
        PsDirectory(placement=lambda: Placement.even(1), resolve=harness.resolve),
        token=TOKEN,
        peer="test",
        plan=harness.spec.plan.fingerprint,
        signature=signature("adam"),
    )
    client.initialise(initial_dense())
    for task, batch in BATCHES[:5]:
        client.push(push_of(task, batch))
    saved = weights(client)
    harness.loop.call(harness.bus.signals.order(PS, TakeSnapshot(ps=PS, request=1, reason="test"), "test"))
    harness.await_event(SnapshotTaken, 2)
    client.push(push_of(*BATCHES[5]))
    heartbeat = harness.await_heartbeat()
    assert 0 < heartbeat.metrics["rss_bytes"] < RSS_BYTES_MAX

    process.kill()
    assert process.wait() == -signal.SIGKILL
    process = harness.ps("ps.log")
    started = harness.await_event(PsStarted, 2).event
    assert isinstance(started, PsStarted)
    assert started.ledgers[0].ledger.step == 5
    for mine, theirs in zip(weights(client), saved, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    client.close()

    process.terminate()
    assert process.wait(DEADLINE_S) == 0


def test_without_settings_it_says_what_is_missing() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ELASTICDL_")}
    ended = subprocess.run(
        [sys.executable, "-m", "elasticdl.ps.main"], env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "ELASTICDL_NATS_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr
