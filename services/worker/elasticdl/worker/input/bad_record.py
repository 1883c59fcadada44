"""Names the record of a batch that the user's code can't take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from elasticdl.shared.errors import UserError
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import display
from elasticdl.worker.input.records import BatchRecords, TaskRecords
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.ports import FedBatch, Feeder

Found = TypeVar("Found")


def feed_naming_records(
    feeder: Feeder,
    records: TaskRecords,
    task: TaskId,
    batch: BatchRecords,
    find: Callable[[FedBatch | None], Found],
) -> tuple[FedBatch | None, Found]:
    """Feed a batch, and find something in it; an error says which record is bad.

    Args:
        feeder: the user's feed.
        records: where the batch was read.
        task: the batch's task.
        batch: what is fed.
        find: what else may raise because of a record.

    Raises:
        UserError: the user's function breaks the contract.
        UserCodeError: the user's function raised.
    """

    def feed(raw: Any) -> tuple[FedBatch | None, Found]:
        fed = feeder.feed(raw, batch.seed)
        return fed, find(fed)

    try:
        return feed(batch.records)
    except UserError as error:
        if not feeder.is_compiled:
            raise
        source = display(records.source_uri(task))
        raise name_record(error, source, batch.numbers, lambda number: feed(records.one(task, number))) from error


def name_record(error: UserError, source: str, numbers: list[int], feed_one: Callable[[int], object]) -> UserError:
    """The error with the record that it is about, found by feeding the records one at a time.

    Where each record fails alone it is the code, not a record.

    Args:
        error: what feeding the whole batch raised.
        source: name of the data object that the records are from.
        numbers: numbers of the batch's records in it, in the batch's order.
        feed_one: feeds the record of a number; raises UserError for a bad one.
    """
    named, good = None, False
    for number in numbers:
        try:
            feed_one(number)
            good = True
        except UserError as alone:
            named = named or _located(f"record {number} (from 0) of {source}", alone)
        if good and named is not None:
            return named
    if good:
        return _located(f"records {min(numbers)} to {max(numbers)} (from 0) of {source} together", error)
    return named if named is not None and len(numbers) == 1 else error


def _located(where: str, error: UserError) -> UserError:
    if isinstance(error, UserCodeError):
        return UserCodeError(f"{where}: {error}", traceback=error.traceback)
    return UserError(f"{where}: {error}")
