"""Deciding again what a log says was decided."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.master.driver import Driver
from tests.unit.master.histories import History

from elasticdl.master.core import fold
from elasticdl.master.verification import verify
from elasticdl.shared.messages.commands import StopPod
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.shared.names import PodName


async def read(log: list[LogRecord]) -> AsyncIterator[LogRecord]:
    for record in log:
        yield record


@given(st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
async def test_the_same_code_decides_the_same(data: st.DataObject) -> None:
    history = History(data.draw)
    for _ in range(data.draw(st.integers(0, 30))):
        history.go_on()
    log = history.driver.log
    found = await verify(read(log))
    assert found.differences == ()
    assert found.state == fold(log)
    assert found.last_seq == len(log)
    assert found.decisions == sum(1 for record in log if isinstance(record.envelope.event, Decided))


async def test_another_decision_is_told() -> None:
    driver = Driver()
    driver.start_all()
    place, record = next((i, r) for i, r in enumerate(driver.log) if isinstance(r.envelope.event, Decided))
    event = record.envelope.event
    assert isinstance(event, Decided)
    other = replace(event, commands=(StopPod(pod=PodName("ps-0"), reason="on a whim"),))
    log = [*driver.log]
    log[place] = replace(record, envelope=replace(record.envelope, event=other))
    found = await verify(read(log))
    assert f"#{record.seq} decided StopPod(pod='ps-0', reason='on a whim', kill=False), now" in found.differences[0]
