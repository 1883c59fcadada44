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
from tests.unit.ps.example import BATCHES, initial_dense, push_of, signature, spec
from tests.unit.ps.servers import weights

from elasticdl.shared.beats import Beat
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.nats_bus import NatsBus, connect
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.commands import TakeSnapshot
from elasticdl.shared.events import Envelope, JobSubmitted, PsStarted, SnapshotTaken
from elasticdl.shared.names import PodName, Service, new_incarnation
from elasticdl.shared.partitions import Placement
from elasticdl.shared.registers import decode_register
from elasticdl.shared.settings import PsSettings, to_environment
from elasticdl.shared.storage import to_uri
from elasticdl.worker.ps_set import PsAddress, PsSet

pytestmark = pytest.mark.e2e
PS = PodName("ps-0")
DEADLINE_S = 60.0
RSS_BYTES_MAX = 250 << 20


class Surroundings:
    """A broker with one job on it, and processes of its only ps."""

    def __init__(self, folder: Path) -> None:
        self.spec = spec(to_uri(folder / "storage"))
        self._folder = folder
        self._server = NatsServer(folder / "nats")
        self._url = self._server.start()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.loop = LoopThread()
        self.bus: NatsBus = self.loop.call(connect(self._url, self.spec.job))
        submitted = Envelope(
            service=Service.CLIENT,
            name=PodName("client"),
            incarnation=new_incarnation(),
            number=1,
            time_s=0.0,
            event=JobSubmitted(spec=self.spec),
        )
        self.loop.call(self.bus.log.append(submitted))

    def start(self) -> subprocess.Popen[bytes]:
        settings = PsSettings(nats_url=self._url, job=self.spec.job, pod=PS, token="secret", beat_interval_s=0.05)
        with (self._folder / "ps.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "elasticdl.ps.main"], env=os.environ | to_environment(settings), stderr=log
            )
        self._processes.append(process)
        return process

    def resolve(self) -> Mapping[PodName, PsAddress]:
        entry = self.loop.call(self.bus.register.read(PS))
        if entry is None:
            return {}
        register = decode_register(entry.value)
        return {PS: PsAddress(address=register.address, incarnation=register.incarnation)}

    def await_event(self, kind: type[PsStarted] | type[SnapshotTaken], count: int) -> Envelope:
        async def read() -> Envelope:
            found = 0
            async for record in self.bus.log.read(after=0):
                found += isinstance(record.envelope.event, kind)
                if found == count:
                    return record.envelope
            raise AssertionError("the log ended")

        return self.loop.call(asyncio.wait_for(read(), DEADLINE_S))

    def await_beat(self) -> Beat:
        async def first(beats: AsyncIterator[Beat]) -> Beat:
            return await anext(beats)

        return self.loop.call(asyncio.wait_for(first(self.bus.signals.beats()), DEADLINE_S))

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.loop.call(self.bus.close())
        self.loop.stop()
        self._server.stop()


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[Surroundings]:
    surroundings = Surroundings(tmp_path)
    yield surroundings
    surroundings.close()


def test_killed_restored_and_asked_to_end(surroundings: Surroundings) -> None:
    process = surroundings.start()
    surroundings.await_event(PsStarted, 1)
    client = PsSet(
        placement=lambda: Placement.even(1),
        resolve=surroundings.resolve,
        token="secret",
        peer="test",
        plan=surroundings.spec.plan.fingerprint,
        signature=signature("adam"),
    )
    client.initialise(initial_dense())
    for task, batch in BATCHES[:5]:
        client.push(push_of(task, batch))
    saved = weights(client)
    surroundings.loop.call(surroundings.bus.signals.order(PS, TakeSnapshot(ps=PS, request=1, reason="test"), "test"))
    surroundings.await_event(SnapshotTaken, 2)
    client.push(push_of(*BATCHES[5]))
    beat = surroundings.await_beat()
    assert 0 < beat.metrics["rss_bytes"] < RSS_BYTES_MAX

    process.kill()
    assert process.wait() == -signal.SIGKILL
    process = surroundings.start()
    started = surroundings.await_event(PsStarted, 2).event
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
    assert ended.returncode in (1, 2)
    assert "ELASTICDL_NATS_URL is not set" in ended.stderr
    assert "Traceback" not in ended.stderr
