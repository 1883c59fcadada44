"""Ledgers and range sets against the simplest models of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.job.ledger import Ledger, LedgerRecord, Verdict
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import TaskId

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def as_set(pairs: list[tuple[int, int]]) -> set[int]:
    return {value for start, end in pairs for value in range(start, end)}


@given(ranges)
def test_a_range_set_is_a_set(pairs: list[tuple[int, int]]) -> None:
    mine, model = RangeSet(pairs), as_set(pairs)
    assert list(mine) == sorted(model)
    assert len(mine) == len(model)
    assert all((value in mine) == (value in model) for value in range(-1, 62))
    missing = [next(value for value in range(start, 62) if value not in model) for start in range(61)]
    assert [mine.first_missing(start) for start in range(61)] == missing
    kept = mine.ranges()
    assert all(end < start for (_, end), (start, _) in pairwise(kept))
    assert as_set(list(mine.gaps(0, 60))) == set(range(60)) - model


@given(ranges, ranges)
def test_intersection(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert set(RangeSet(first).intersection(RangeSet(second))) == as_set(first) & as_set(second)


@given(ranges, ranges)
def test_union_and_difference(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    assert RangeSet(first).union(RangeSet(second)) == RangeSet([*first, *second])
    difference = RangeSet(first).difference(RangeSet(second))
    assert set(difference) == as_set(first) - as_set(second)
    assert len(difference) == len(as_set(first) - as_set(second))


@given(ranges, st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=40))
def test_single_integers_are_added_and_discarded(pairs: list[tuple[int, int]], changes: list[tuple[bool, int]]) -> None:
    mine, model = RangeSet(pairs), as_set(pairs)
    for adds, value in changes:
        (mine.add if adds else mine.discard)(value)
        (model.add if adds else model.discard)(value)
        assert mine == RangeSet([(each, each + 1) for each in sorted(model)])
        assert len(mine) == len(model)


BATCHES = 4


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, BATCHES - 1)), max_size=80))
def test_only_the_next_batch_of_a_task_is_ever_absorbed(pushes: list[tuple[int, int]]) -> None:
    ledger, absorbed = Ledger(), dict.fromkeys(range(6), 0)
    for task, batch in pushes:
        verdict = ledger.absorb(TaskId(task), batch, BATCHES, records=10, checksum=2**63 + batch)
        if batch == absorbed[task]:
            assert verdict is Verdict.APPLIED
            absorbed[task] += 1
        else:
            assert verdict is (Verdict.DUPLICATE if batch < absorbed[task] else Verdict.GAP)
        assert ledger.next_batch(TaskId(task), BATCHES) == absorbed[task]
    assert ledger.step == sum(absorbed.values())
    assert ledger.records == 10 * ledger.step
    whole = {task for task, batches in absorbed.items() if batches == BATCHES}
    assert set(range(6)) - as_set(list(ledger.missing(6))) == whole
    record = ledger.record()
    assert dict(record.open) == {task: n for task, n in absorbed.items() if 0 < n < BATCHES}
    assert Ledger(record) == ledger


def test_the_checksum_is_a_sum_modulo_2_64() -> None:
    ledger = Ledger(LedgerRecord(checksum=2**64 - 1))
    ledger.absorb(TaskId(0), 0, 2, records=1, checksum=3)
    assert ledger.checksum == 2


def test_a_copy_does_not_follow_the_original() -> None:
    ledger = Ledger()
    ledger.absorb(TaskId(0), 0, 2, records=1, checksum=1)
    copy = ledger.copy()
    ledger.absorb(TaskId(0), 1, 2, records=1, checksum=1)
    assert copy.step == 1
    assert (copy.next_batch(TaskId(0), 2), ledger.next_batch(TaskId(0), 2)) == (1, 2)
