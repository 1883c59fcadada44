"""Verification: the recorded decisions against those of the present code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.master.driver import Driver
from tests.unit.master.histories import History, arriving_late

from elasticdl.master.core.fold import fold
from elasticdl.shared.messages.commands import Command, StopPod
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.shared.names import PodName
from elasticdl.views.reading import verify
from elasticdl.views.report import build


async def read(log: list[LogRecord]) -> AsyncIterator[LogRecord]:
    for record in log:
        yield record


def decisions(log: list[LogRecord]) -> list[LogRecord]:
    return [record for record in log if isinstance(record.envelope.event, Decided)]


def with_commands(record: LogRecord, commands: tuple[Command, ...]) -> LogRecord:
    """The same decision with other commands."""
    event = record.envelope.event
    assert isinstance(event, Decided)
    return replace(record, envelope=replace(record.envelope, event=replace(event, commands=commands)))


@given(st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
async def test_verification_finds_no_difference_and_exactly_those_that_are_made(data: st.DataObject) -> None:
    """A log that this code wrote holds no difference; a decision that lost a command is one, wherever it stands."""
    history = History(data.draw)
    for _ in range(data.draw(st.integers(0, 30))):
        history.step()
    log = history.driver.log
    found = await verify(read(log))
    assert found.differences == ()
    assert found.state == fold(log)
    assert found.last_seq == len(log)
    assert found.decisions == len(decisions(log))

    changeable = [record for record in decisions(log) if commands_of(record)]
    assert changeable, "the first decision of a job starts its pods"
    changed = data.draw(st.sampled_from(changeable))
    # The later log follows from the decision as it was taken, so it is cut off there.
    cut = [*log[: log.index(changed)], with_commands(changed, commands_of(changed)[1:])]
    (difference,) = (await verify(read(cut))).differences
    assert difference.startswith(f"#{changed.seq}: ")
    assert str(commands_of(changed)[0]) in difference


@given(st.data())
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
async def test_decisions_that_arrive_late_are_rerun_in_the_state_in_which_they_were_made(data: st.DataObject) -> None:
    history = History(data.draw)
    for _ in range(data.draw(st.integers(0, 30))):
        history.step()
    found = await verify(read(arriving_late(history.driver.log, lambda: data.draw(st.booleans()))))
    assert found.differences == ()
    assert build(found.state) == build(history.driver.state), "others see the job as its master does"


def commands_of(record: LogRecord) -> tuple[Command, ...]:
    event = record.envelope.event
    return event.commands if isinstance(event, Decided) else ()


async def test_another_decision_is_reported_with_both_versions() -> None:
    driver = Driver()
    driver.start_all()
    record = decisions(driver.log)[0]
    other = with_commands(record, (StopPod(pod=PodName("ps-0"), reason="on a whim"),))
    log = [other if one is record else one for one in driver.log]
    found = await verify(read(log))
    text = f"#{record.seq}: recorded StopPod(pod='ps-0', reason='on a whim', kill=False, instance=''), now"
    assert text in found.differences[0]
