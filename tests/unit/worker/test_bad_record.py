"""Which record of a batch is bad."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.names import Purpose
from elasticdl.worker.input.bad_record import Record, name_record
from elasticdl.worker.model.user.calls import UserCodeError

from .conftest import message

if TYPE_CHECKING:
    from .conftest import MakeWorld

NUMBERS = [40, 7, 19]
BATCH = [("a.csv", number) for number in NUMBERS]


@pytest.mark.parametrize("bad", NUMBERS)
def test_the_bad_record_is_named(bad: int) -> None:
    def feed_one(record: Record) -> None:
        if record == ("a.csv", bad):
            raise UserCodeError("feed() raised ValueError", traceback="line 3")

    named = name_record(UserCodeError("feed() raised", traceback="line 2"), BATCH, feed_one)
    assert str(named) == f"record {bad} (from 0) of a.csv: feed() raised ValueError"
    assert isinstance(named, UserCodeError)
    assert named.traceback == "line 3"


def test_records_that_are_bad_only_together_are_named_as_a_range() -> None:
    named = name_record(UserError("labels differ", hint="Do they?"), BATCH, lambda record: None)
    assert str(named) == "records 7 to 40 (from 0) of a.csv together: labels differ\n  Do they?"


def test_records_of_several_files_that_are_bad_only_together() -> None:
    batch = [("b.csv", 3), *BATCH, ("c.csv", 1)]
    named = name_record(UserError("labels differ"), batch, lambda record: None)
    assert str(named) == "records 7 to 40 (from 0) of a.csv and records of 2 other sources together: labels differ"


def raises_always(record: Record) -> None:
    raise UserCodeError(f"feed() raised NameError for {record[1]}")


def test_code_that_takes_no_record_is_blamed_itself() -> None:
    whole = UserCodeError("feed() raised NameError")
    assert name_record(whole, BATCH, raises_always) is whole
    alone = name_record(whole, [("a.csv", 7)], raises_always)
    assert str(alone) == "record 7 (from 0) of a.csv: feed() raised NameError for 7"


@pytest.mark.parametrize("purpose", [Purpose.TRAIN, Purpose.EVALUATE, Purpose.PREDICT])
@pytest.mark.parametrize("dropped", [b"skip", b"4"])
def test_the_record_that_the_model_cant_take_is_named(make_world: MakeWorld, purpose: Purpose, dropped: bytes) -> None:
    if purpose is Purpose.PREDICT and dropped == b"skip":
        dropped = b"8"  # A prediction drops nothing.
    world = make_world([b"1", b"2", dropped, b"7"])
    world.model.wrong_at = 7
    world.tasks.deliveries_max = 1
    world.tasks.publish(message(0, purpose))
    world.run()
    (failed,) = world.failed()
    assert failed.message.endswith("0.tfrecord: 7 is not in [0, 5)")
    assert failed.message.startswith("record 3 (from 0) of ")
    assert len(world.store) == 0
