from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from elasticdl.shared.bus import Bus, KeyValueEntry, subjects
from elasticdl.shared.errors import FencedError

Connect = Callable[[], Awaitable[Bus]]


async def test_an_unwritten_register_is_empty(bus: Bus) -> None:
    assert await bus.registers.read("ps-0") is None


async def test_what_is_written_is_read(connect_bus: Connect) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    first = await writer.registers.write("ps-0", b"claim", after=0)
    await writer.registers.write("ps-1", b"other", after=0)
    second = await writer.registers.write("ps-0", b"version\x00\xff", after=first)
    assert second > first
    assert await reader.registers.read("ps-0") == KeyValueEntry(value=b"version\x00\xff", seq=second)


async def test_an_empty_value_is_a_value(bus: Bus) -> None:
    seq = await bus.registers.write("ps-0", b"", after=0)
    assert await bus.registers.read("ps-0") == KeyValueEntry(value=b"", seq=seq)


async def test_a_writer_that_was_overtaken_is_refused(connect_bus: Connect) -> None:
    old, new = await connect_bus(), await connect_bus()
    first = await old.registers.write("ps-0", b"old", after=0)
    second = await new.registers.write("ps-0", b"new", after=first)
    with pytest.raises(FencedError, match="ps-0"):
        await old.registers.write("ps-0", b"old again", after=first)
    with pytest.raises(FencedError):
        await old.registers.write("ps-0", b"as if it were the first", after=0)
    assert await old.registers.read("ps-0") == KeyValueEntry(value=b"new", seq=second)


async def test_equal_bytes_of_another_writer_are_no_excuse(bus: Bus) -> None:
    first = await bus.registers.write("ps-0", b"same", after=0)
    await bus.registers.write("ps-0", b"same", after=first)
    with pytest.raises(FencedError):
        await bus.registers.write("ps-0", b"same", after=first)


async def test_a_watcher_sees_present_values_and_then_changes(connect_bus: Connect) -> None:
    writer, watcher = await connect_bus(), await connect_bus()
    first = await writer.registers.write("ps-0", b"a", after=0)
    first = await writer.registers.write("ps-0", b"b", after=first)
    await writer.registers.write(subjects.RING, b"ring", after=0)
    seen: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()

    async def watch() -> None:
        async for name, entry in watcher.registers.watch():
            seen.put_nowait((name, entry.value))

    watching = asyncio.create_task(watch())
    assert [await seen.get(), await seen.get()] == [("ps-0", b"b"), (subjects.RING, b"ring")]
    await writer.registers.write("ps-0", b"c", after=first)
    assert await seen.get() == ("ps-0", b"c")
    await watcher.close()
    await watching
