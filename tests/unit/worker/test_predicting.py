"""Prediction tasks in a worker: what is pulled, written and published."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow.parquet

from elasticdl.shared.messages.events import FailureKind
from elasticdl.shared.names import Purpose

from .conftest import message

if TYPE_CHECKING:
    from .conftest import MakeWorld, World


def values(world: World, name: str) -> list[int]:
    """The predictions in a file of the output."""
    table = pyarrow.parquet.read_table(io.BytesIO(world.files.read(f"memory://out/{name}.parquet")))
    found: list[int] = table["prediction"].to_pylist()
    return found


def test_tasks_are_predicted_with_one_pull_of_the_dense_variables_and_published(world: World) -> None:
    world.tasks.publish(*(message(number, Purpose.PREDICT) for number in (2, 0, 1, 1)))
    world.run()
    results = {event.task.number: event for event in world.finished()}
    assert {number: (one.records, one.batches) for number, one in results.items()} == {0: (4, 2), 1: (4, 2), 2: (2, 1)}
    assert sum(event.checksum for event in results.values()) > 0
    assert world.ps.wire == ["pull", *["pull rows"] * (len(world.ps.wire) - 1)]
    assert values(world, f"_temporary/job/{results[1].file}") == [40, 50, 60, 70]
    assert len(world.store) == 0

    files = tuple(results[number].file for number in range(3))
    world.tasks.deliveries.clear()
    world.tasks.publish(message(0, Purpose.EXPORT, files=files))
    world.run()
    assert [info.uri.rpartition("/")[2] for info in world.files.list("memory://out/")] == [
        "_SUCCESS",
        *(f"part-{number:05}-of-00003.parquet" for number in range(3)),
    ]
    assert values(world, "part-00002-of-00003") == [80, 90]


def test_a_task_whose_batch_fails_is_predicted_again_from_its_start(world: World) -> None:
    world.model.raise_at = 3
    world.tasks.deliveries_max = 2
    world.tasks.publish(message(0, Purpose.PREDICT))
    world.run()
    assert [failed.kind for failed in world.failed()] == [FailureKind.USER_CODE] * 2
    assert world.failed()[0].batch == 1
    assert list(world.files.list("memory://out/")) == []


def test_a_feed_that_drops_records_is_refused(make_world: MakeWorld) -> None:
    world = make_world([b"1", b"skip", b"3"])
    world.tasks.deliveries_max = 1
    world.tasks.publish(message(0, Purpose.PREDICT))
    world.run()
    (failed,) = world.failed()
    assert "the feed drops 1 records of a batch in mode 'predict'" in failed.message
