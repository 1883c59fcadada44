"""Large metric states beside the log: both adapters keep them until they are removed."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable
from random import Random

from elasticdl.shared.bus import Bus
from elasticdl.shared.model.metric_states import PART_VALUES_MAX, add_parts, pack_states

Connect = Callable[[], Awaitable[Bus]]


async def test_what_is_stored_is_read_by_another_client_until_it_is_removed(connect_bus: Connect) -> None:
    writer, reader = await connect_bus(), await connect_bus()
    numbers = [await writer.stored_states.append("epoch-0", part) for part in (b"a", b"\x00\xff", b"a")]
    assert numbers == sorted(set(numbers))
    assert [await reader.stored_states.read(number) for number in numbers] == [b"a", b"\x00\xff", b"a"]
    await reader.stored_states.remove(numbers[:2])
    assert [await writer.stored_states.read(number) for number in numbers] == [None, None, b"a"]


async def test_removing_again_and_reading_what_never_was_there_are_harmless(bus: Bus) -> None:
    number = await bus.stored_states.append("epoch-0", b"a")
    for _ in range(2):
        await bus.stored_states.remove([number, number + 7])
        await bus.stored_states.remove_group("epoch-0")
    assert await bus.stored_states.read(number + 7) is None
    assert await bus.stored_states.append("epoch-0", b"b") > number, "no number is used twice"


async def test_removing_again_between_others_is_harmless(bus: Bus) -> None:
    numbers = [await bus.stored_states.append("epoch-0", b"a") for _ in range(5)]
    for _ in range(2):
        await bus.stored_states.remove([numbers[0], numbers[2]])
    assert [await bus.stored_states.read(number) for number in numbers] == [None, b"a", None, b"a", b"a"]


async def test_a_group_is_removed_as_a_whole_and_no_other(bus: Bus) -> None:
    first = [await bus.stored_states.append("epoch-1", b"a") for _ in range(3)]
    other = [await bus.stored_states.append(group, b"b") for group in ("epoch-10", "evaluation-1")]
    await bus.stored_states.remove_group("epoch-1")
    assert [await bus.stored_states.read(number) for number in (*first, *other)] == [None, None, None, b"b", b"b"]


async def test_many_are_removed_by_number(bus: Bus) -> None:
    numbers = [await bus.stored_states.append("epoch-0", b"a") for _ in range(150)]
    await bus.stored_states.remove(numbers)
    assert not any([await bus.stored_states.read(number) for number in numbers])


async def test_states_larger_than_a_message_are_stored_in_parts(bus: Bus) -> None:
    random = Random(1)
    values = array("d", [random.random() for _ in range(2 * PART_VALUES_MAX + 5)]).tobytes()
    states = {"auc": (values, bytes(16)), "loss": (bytes(8),)}
    numbers = [await bus.stored_states.append("evaluation-1", part) for part in pack_states(states)]
    assert len(numbers) == 3
    parts = [part for number in numbers if (part := await bus.stored_states.read(number)) is not None]
    assert max(map(len, parts)) < 1 << 20
    assert add_parts({}, parts) == states
