from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import pytest

from elasticdl.shared.bus import Bus, KeyValue, KeyValueEntry
from elasticdl.shared.bus.large_values import SplitValues
from elasticdl.shared.bus.server import PAYLOAD_BYTES_MAX
from elasticdl.shared.errors import FencedError, TransientError

Connect = Callable[[], Awaitable[Bus]]

PART = 100
"""The largest part in these tests, bytes."""


def value(number: int, size: int = 950) -> bytes:
    return Random(number).randbytes(size)


async def names_in(bus: Bus) -> list[str]:
    """All names that have a value, in the order in which they were written; ends at one that it writes itself."""
    present = await bus.registers.read("end")
    await bus.registers.write("end", b"", after=present.seq if present else 0)
    names = []
    async for name, _ in bus.registers.watch():
        if name == "end":
            break
        names.append(name)
    return names


class Interrupted:
    """A register whose client is killed before it writes value number ``after``, counted from 0."""

    def __init__(self, values: KeyValue, after: int) -> None:
        self._values = values
        self._left = after

    async def read(self, name: str) -> KeyValueEntry | None:
        return await self._values.read(name)

    async def write(self, name: str, value: bytes, *, after: int) -> int:
        if not self._left:
            raise TransientError("killed")
        self._left -= 1
        return await self._values.write(name, value, after=after)

    def watch(self) -> AsyncIterator[tuple[str, KeyValueEntry]]:
        return self._values.watch()

    async def remove_below(self, name: str, *, before: int) -> None:
        raise TransientError("killed")


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 10 * PART, 10 * PART + 1])
async def test_a_value_of_any_size_is_read_as_it_was_written(connect_bus: Connect, size: int) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    seq = await SplitValues(writer.registers, PART).write("ps-0", value(1, size), after=0)
    assert await SplitValues(reader.registers, PART).read("ps-0") == KeyValueEntry(value=value(1, size), seq=seq)


async def test_a_core_snapshot_may_be_larger_than_a_message(connect_bus: Connect) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    large = Random(1).randbytes(PAYLOAD_BYTES_MAX + (3 << 20))
    seq = await writer.core_snapshots.write("master", large, after=0)
    assert await reader.core_snapshots.read("master") == KeyValueEntry(value=large, seq=seq)
    seq = await writer.core_snapshots.write("master", b"small", after=seq)
    assert await reader.core_snapshots.read("master") == KeyValueEntry(value=b"small", seq=seq)


async def test_a_value_that_looks_like_the_names_of_parts_is_a_value(bus: Bus) -> None:
    values = SplitValues(bus.registers, PART)
    await values.write("ps-0", value(1), after=0)
    inner = await bus.registers.read("ps-0")
    assert inner and len(inner.value) <= PART
    await values.write("ps-1", inner.value, after=0)
    entry = await values.read("ps-1")
    assert entry and entry.value == inner.value


async def test_the_parts_of_former_values_are_removed(bus: Bus) -> None:
    values = SplitValues(bus.registers, PART)
    await bus.registers.write("ps-1", b"of another name", after=0)
    await bus.registers.write("ps-1.part", b"below another name", after=0)
    seq = await values.write("ps-0", value(1), after=0)
    seq = await values.write("ps-0", value(2), after=seq)
    names = await names_in(bus)
    assert (names[:2], len(names), names[-1]) == (["ps-1", "ps-1.part"], 13, "ps-0")
    await values.write("ps-0", b"small", after=seq)
    assert await names_in(bus) == ["ps-1", "ps-1.part", "ps-0"]


async def test_the_parts_of_a_value_are_not_removed_with_those_of_another_name(bus: Bus) -> None:
    values = SplitValues(bus.registers, PART)
    names = ["ps-1", "ps-10", "ps-1-1"]
    for name in names:
        await values.write(name, value(len(name)), after=0)
    for name in names:
        entry = await values.read(name)
        assert entry and entry.value == value(len(name))


@pytest.mark.parametrize("written", [0, 1, 5, 10])
async def test_a_writer_that_is_killed_between_parts_leaves_the_value_before(
    connect_bus: Connect, written: int
) -> None:
    bus, successor = await connect_bus(), await connect_bus()
    seq = await SplitValues(bus.registers, PART).write("ps-0", value(1), after=0)
    with pytest.raises(TransientError, match="killed"):
        await SplitValues(Interrupted(bus.registers, written), PART).write("ps-0", value(2), after=seq)
    values = SplitValues(successor.registers, PART)
    assert await values.read("ps-0") == KeyValueEntry(value=value(1), seq=seq)
    seq = await values.write("ps-0", value(3), after=seq)
    assert await values.read("ps-0") == KeyValueEntry(value=value(3), seq=seq)
    assert len(await names_in(successor)) == 11


async def test_old_parts_that_could_not_be_removed_go_with_the_next_value(bus: Bus) -> None:
    seq = await SplitValues(Interrupted(bus.registers, 11), PART).write("ps-0", value(1), after=0)
    seq = await SplitValues(Interrupted(bus.registers, 11), PART).write("ps-0", value(2), after=seq)
    assert len(await names_in(bus)) == 21
    await SplitValues(bus.registers, PART).write("ps-0", value(3), after=seq)
    assert len(await names_in(bus)) == 11


async def test_a_writer_that_was_overtaken_is_refused_and_harms_no_part(connect_bus: Connect) -> None:
    old, new = await connect_bus(), await connect_bus()
    first = await SplitValues(old.registers, PART).write("ps-0", value(1), after=0)
    second = await SplitValues(new.registers, PART).write("ps-0", value(2), after=first)
    with pytest.raises(FencedError, match="ps-0"):
        await SplitValues(old.registers, PART).write("ps-0", value(3), after=first)
    assert await SplitValues(new.registers, PART).read("ps-0") == KeyValueEntry(value=value(2), seq=second)


async def test_a_reader_gets_whole_values_while_they_are_replaced(connect_bus: Connect) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    written = [value(number) for number in range(20)]
    values = SplitValues(writer.registers, PART)

    async def write_all() -> None:
        seq = 0
        for each in written:
            seq = await values.write("ps-0", each, after=seq)

    writing = asyncio.create_task(write_all())
    seen = []
    while not writing.done():
        entry = await SplitValues(reader.registers, PART).read("ps-0")
        seen += [entry.value] if entry else []
        await asyncio.sleep(0)
    await writing
    assert set(seen) <= set(written)
    places = [written.index(each) for each in seen]
    assert places == sorted(places)


async def test_a_value_without_one_of_its_parts_reads_as_empty_and_can_be_replaced(bus: Bus) -> None:
    values = SplitValues(bus.registers, PART)
    seq = await values.write("ps-0", value(1), after=0)
    first = await bus.registers.read("ps-0")
    assert first is not None
    await bus.registers.remove_below("ps-0", before=first.seq - 3)
    assert await values.read("ps-0") == KeyValueEntry(value=b"", seq=seq)
    await values.write("ps-0", value(2), after=seq)
    entry = await values.read("ps-0")
    assert entry and entry.value == value(2)
