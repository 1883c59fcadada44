"""Names the record of a batch that the user's code can't take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from elasticdl.shared.errors import UserError
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import display
from elasticdl.worker.failures import DataError
from elasticdl.worker.input.records import BatchRecords, TaskRecords
from elasticdl.worker.model.user.calls import RecordError, UserCodeError
from elasticdl.worker.ports import FedBatch, Feeder

Found = TypeVar("Found")
Record = tuple[str, int]
"""URI of the source of a record, and the record's number in it."""


def feed_naming_records(
    feeder: Feeder,
    records: TaskRecords,
    task: TaskId,
    batch: BatchRecords,
    find: Callable[[FedBatch | None], Found],
) -> tuple[FedBatch | None, Found]:
    """Feed a batch, and find something in it; an error says which record is bad.

    Args:
        find: what else may raise because of a record.

    Raises:
        DataError: a record is wrong.
        UserError: the user's function breaks the contract.
        UserCodeError: the user's function raised.
    """

    def feed(raw: Any) -> tuple[FedBatch | None, Found]:
        fed = feeder.feed(raw, batch.seed)
        return fed, find(fed)

    try:
        return feed(batch.records)
    except RecordError as error:
        record = records.located(task, int(batch.places[error.place]))
        raise DataError(f"{_shown(record)}: {error}") from error
    except UserError as error:
        if not feeder.is_compiled:
            raise
        places = {records.located(task, place): place for place in map(int, batch.places)}
        raise name_record(error, list(places), lambda record: feed(records.one(task, places[record]))) from error


def may_be_about_a_record(error: UserError) -> bool:
    """Whether an error of computing a batch may be about the values of one record."""
    return isinstance(error, UserCodeError) and error.is_about_values


def name_computed(
    error: UserError,
    feeder: Feeder,
    records: TaskRecords,
    task: TaskId,
    batch: BatchRecords,
    compute: Callable[[FedBatch], object],
) -> UserError:
    """The error of computing a batch, with the record that it is about if it is about the values of one.

    Args:
        error: what computing the whole batch raised, see ``may_be_about_a_record``.
        feeder: the user's feed, which may drop and reorder records. So each record is fed alone.
        compute: computes the fed batch of one record; raises as the whole batch did.
    """
    places = {records.located(task, place): place for place in map(int, batch.places)}
    failed = []

    def compute_one(record: Record) -> None:
        fed = feeder.feed(records.one(task, places[record]), batch.seed)
        try:
            if fed is not None:
                compute(fed)
        except UserError:
            failed.append(record)
            raise

    named = name_record(error, list(places), compute_one)
    return named if failed else error


def name_record(error: UserError, batch: Sequence[Record], feed_one: Callable[[Record], object]) -> UserError:
    """The error with the record that it is about, found by feeding the records one at a time.

    Where each record fails alone it is the code, not a record.

    Args:
        feed_one: feeds a record; raises UserError for a bad one.
    """
    named, good = None, False
    for record in batch:
        try:
            feed_one(record)
            good = True
        except UserError as alone:
            named = named or _located(_shown(record), alone)
        if good and named is not None:
            return named
    if good:
        return _located(f"{_together(batch)} together", error)
    return named if named is not None and len(batch) == 1 else error


def _shown(record: Record) -> str:
    return f"record {record[1]} (from 0) of {display(record[0])}"


def _together(batch: Sequence[Record]) -> str:
    sources = sorted({uri for uri, _ in batch})
    (uri, first), (_, last) = min(batch), max(record for record in batch if record[0] == sources[0])
    records = f"records {first} to {last} (from 0) of {display(uri)}"
    return records if len(sources) == 1 else f"{records} and records of {len(sources) - 1} other sources"


def _located(where: str, error: UserError) -> UserError:
    if isinstance(error, UserCodeError):
        return UserCodeError(f"{where}: {error}", traceback=error.traceback)
    return UserError(f"{where}: {error}")
