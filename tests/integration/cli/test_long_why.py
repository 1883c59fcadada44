"""Where the time of a long log went, found by a child while its parent reads the log from a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.histories.logs import append
from tests.histories.long import long_log

from elasticdl.cli.jobs import wall_time_child
from elasticdl.cli.jobs.wall_time_child import folded_wall_time
from elasticdl.shared.bus.nats_bus import connect
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.names import JobId
from elasticdl.views.wall_time.fold import wall_time


@pytest.fixture(autouse=True)
def every_log_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wall_time_child, "RECORDS_MIN", 1)


async def test_it_finds_the_same(tmp_path: Path) -> None:
    records = list(long_log(2000, workers=3))
    server = NatsServer(tmp_path / "nats")
    try:
        async with await connect(server.start(), JobId("long")) as bus:
            await append(bus.log, (record.envelope for record in records))
            assert await folded_wall_time(bus.log) == wall_time(records)
    finally:
        server.stop()


class _NoEnvelopes:
    """A log whose second record is no envelope, with nothing from which its sender could be found."""

    async def last_seq(self) -> int:
        return 2

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        del after, decode, until
        yield next(long_log(1))

    async def encoded(self, after: int, until: int) -> AsyncIterator[Sequence[bytes]]:
        yield [b""]


async def test_a_child_that_fails_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvariantError, match="a child process that reads the event log ended with exit code 1"):
        await folded_wall_time(_NoEnvelopes())
    assert "IndexError" in capfd.readouterr().err
