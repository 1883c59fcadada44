from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.contract.bus.values import decision, fact, large_event
from tests.unit.master.driver import job_spec

from elasticdl.shared.bus import Bus
from elasticdl.shared.bus.reading import open_run
from elasticdl.shared.errors import FencedError, PermanentError, TransientError
from elasticdl.shared.messages.events import JobSubmitted, LogRecord

Connect = Callable[[], Awaitable[Bus]]


async def take(bus: Bus, count: int, after: int = 0) -> list[LogRecord]:
    records: list[LogRecord] = []
    async for record in bus.log.read(after):
        records.append(record)
        if len(records) == count:
            break
    return records


async def test_records_come_back_in_order(bus: Bus) -> None:
    seqs = [await bus.log.append(fact(number)) for number in range(1, 6)]
    assert seqs == [1, 2, 3, 4, 5]
    assert [(each.seq, each.envelope) for each in await take(bus, 5)] == [(n, fact(n)) for n in range(1, 6)]
    assert [each.seq for each in await take(bus, 2, after=3)] == [4, 5]
    assert await bus.log.last_seq() == 5
    for after, until, expected in ((0, 3, [1, 2, 3]), (2, 3, [3]), (3, 3, []), (4, 3, [])):
        assert [each.seq async for each in bus.log.read(after, until=until)] == expected


async def test_a_large_event_comes_back_whole(connect_bus: Connect) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    sent = [fact(number, event=large_event(size)) for number, size in enumerate((100, 300, 600, 40_000, 1_500_000), 1)]
    for each in sent:
        await writer.log.append(each)
    assert [record.envelope for record in await take(reader, len(sent))] == sent


async def test_events_that_are_appended_at_once_are_all_there_once(bus: Bus) -> None:
    sent = [fact(number, event=large_event(100 * number)) for number in range(1, 9)]
    await bus.log.append(sent[3])
    await bus.log.append_all(sent)
    stored = [record.envelope for record in await take(bus, len(sent))]
    assert sorted(stored, key=lambda each: each.number) == sent
    assert await bus.log.last_seq() == len(sent)


async def test_a_large_event_is_appended_once(bus: Bus) -> None:
    sent = fact(1, event=large_event(5000))
    assert [await bus.log.append(sent), await bus.log.append(sent)] == [1, 1]
    assert await bus.log.append(fact(2, event=large_event(5000))) == 2  # The same content under another id.
    assert await bus.log.append_next(fact(3, event=large_event(5000, salt="x")), after=2) == 3
    assert await bus.log.append_next(fact(3, event=large_event(5000, salt="x")), after=2) == 3
    decided = replace(decision(1), event=large_event(6000))
    assert await bus.log.append_fenced(decided, after=0) == 4
    assert await bus.log.append_fenced(decided, after=0) == 4
    last = await bus.log.last_fenced()
    assert last is not None
    assert last.envelope == decided


async def test_an_empty_log(bus: Bus) -> None:
    assert await bus.log.last_seq() == 0
    assert await bus.log.last_fenced() is None


async def test_repeating_a_fact_changes_nothing(bus: Bus) -> None:
    assert await bus.log.append(fact(1)) == 1
    assert await bus.log.append(fact(2)) == 2
    assert await bus.log.append(fact(1)) == 1
    assert await bus.log.last_seq() == 2


async def test_a_reader_follows_what_others_append(connect_bus: Callable[[], Awaitable[Bus]]) -> None:
    reader, writer = await connect_bus(), await connect_bus()
    await writer.log.append(fact(1))
    reading = asyncio.create_task(take(reader, 3))
    await writer.log.append(fact(2))
    await writer.log.append_fenced(decision(1), after=0)
    assert [each.envelope for each in await reading] == [fact(1), fact(2), decision(1)]


async def test_many_records_are_read_without_gaps(bus: Bus) -> None:
    await asyncio.gather(*(bus.log.append(fact(number)) for number in range(1, 1301)))
    records = await take(bus, 1300)
    assert [each.seq for each in records] == list(range(1, 1301))
    assert {each.envelope.number for each in records} == set(range(1, 1301))


async def test_a_record_that_has_to_come_next_comes_next_or_not_at_all(
    connect_bus: Callable[[], Awaitable[Bus]],
) -> None:
    late, bus = await connect_bus(), await connect_bus()
    assert await bus.log.append_next(fact(1), after=0) == 1
    with pytest.raises(FencedError, match="does not end at 0"):
        await late.log.append_next(fact(2), after=0)
    await bus.log.append_fenced(decision(1), after=0)
    assert await late.log.append_next(fact(2), after=2) == 3
    with pytest.raises(FencedError):
        await late.log.append_next(fact(3), after=7)
    assert await bus.log.last_seq() == 3


async def test_a_next_record_whose_acknowledgement_was_lost_is_found_again(bus: Bus) -> None:
    await bus.log.append(fact(1))
    assert await bus.log.append_next(fact(2), after=1) == 2
    await bus.log.append(fact(3))
    assert await bus.log.append_next(fact(2), after=1) == 2
    assert await bus.log.last_seq() == 3


async def test_a_run_is_opened_behind_whatever_comes_meanwhile(connect_bus: Callable[[], Awaitable[Bus]]) -> None:
    one, other = await connect_bus(), await connect_bus()
    opened = await asyncio.gather(
        open_run(one.log, fact(1)), *(other.log.append(fact(number)) for number in range(2, 20))
    )
    records = await take(one, 19)
    assert records[opened[0] - 1].envelope == fact(1)


async def test_a_job_is_submitted_once(bus: Bus) -> None:
    """A submission of a killed process that arrives late is the one that the master obeys."""
    spec = job_spec()
    assert await open_run(bus.log, fact(1, event=JobSubmitted(spec=spec))) == 1
    with pytest.raises(TransientError, match="another command has submitted this job"):
        await open_run(bus.log, fact(1, incarnation="bbbbbbbbbbbb", event=JobSubmitted(spec=spec)))
    assert await bus.log.last_seq() == 1


async def test_only_one_master_decides(connect_bus: Callable[[], Awaitable[Bus]]) -> None:
    old, new = await connect_bus(), await connect_bus()
    await old.log.append(fact(1))
    first = await old.log.append_fenced(decision(1), after=0)
    assert first == 2
    await old.log.append(fact(2))  # facts in between do not matter
    second = await new.log.append_fenced(decision(1, incarnation="nnnnnnnnnnnn"), after=first)
    assert second == 4
    with pytest.raises(FencedError, match="another master"):
        await old.log.append_fenced(decision(2), after=first)
    last = await old.log.last_fenced()
    assert last == LogRecord(seq=4, envelope=decision(1, incarnation="nnnnnnnnnnnn"))


async def test_a_decision_whose_acknowledgement_was_lost_is_found_again(bus: Bus) -> None:
    first = await bus.log.append_fenced(decision(1), after=0)
    assert await bus.log.append_fenced(decision(1), after=0) == first
    assert await bus.log.last_seq() == first


async def test_a_master_that_knows_of_too_much_is_refused(bus: Bus) -> None:
    with pytest.raises(FencedError):
        await bus.log.append_fenced(decision(1), after=7)


async def test_a_log_that_ends_before_the_place_to_read_from_was_lost(bus: Bus) -> None:
    await bus.log.append(fact(1))
    with pytest.raises(PermanentError, match="record 5"):
        await take(bus, 1, after=5)


async def test_reading_ends_when_the_client_hangs_up(connect_bus: Callable[[], Awaitable[Bus]]) -> None:
    bus = await connect_bus()
    await bus.log.append(fact(1))
    seen = asyncio.Event()

    async def read_all() -> int:
        count = 0
        async for _ in bus.log.read(0):
            count += 1
            seen.set()
        return count

    reading = asyncio.create_task(read_all())
    await seen.wait()
    await bus.close()
    assert await reading == 1
