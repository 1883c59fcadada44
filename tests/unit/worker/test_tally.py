"""What a worker counts while it works on a task."""

from __future__ import annotations

import pytest

from elasticdl.shared.messages.times import Times
from elasticdl.worker.core.tally import SAMPLED_TASKS, Sample, Tally


def test_a_tally_counts_batches_and_phases() -> None:
    tally = Tally()
    tally.add_batch(0, records=3, loss=0.5)
    tally.add_batch(1, records=4)
    tally.add_batch(0, records=3, loss=0.7)  # Computed again: a ps was restored.
    tally.add_seconds({"read": 1.0})
    tally.add_seconds({"read": 0.5, "pull": 2.0})
    assert (tally.records, tally.batches, tally.loss_sum) == (7, 2, 0.5)
    assert tally.seconds == {"read": 1.5, "pull": 2.0}


def test_a_sample_knows_when_each_part_of_its_batch_ended() -> None:
    sample = Sample(batch=2)
    sample.add({"read": 1.0, "feed": 2.0}, now_s=10.0)
    sample.add({"wait": 1.0}, now_s=12.0)
    sample.add({"wait": 0.5}, now_s=14.0)
    sample.add({"compute": 3.0}, now_s=20.0)
    times = sample.times(now_s=21.0)
    assert times.batch == 2
    assert times.times == Times.of({"read": 1.0, "feed": 2.0, "wait": 1.5, "compute": 3.0})
    assert times.ended == Times.of({"read": 13.0, "feed": 11.0, "wait": 7.0, "compute": 1.0})


@pytest.mark.parametrize(("batches", "sampled"), [(1, []), (2, [1]), (5, [2])])
def test_one_batch_of_some_tasks_is_a_sample(batches: int, sampled: list[int]) -> None:
    for task in (0, SAMPLED_TASKS):
        assert [batch for batch in range(batches) if Sample.of(task, batch, batches)] == sampled
    assert not any(Sample.of(task, batch, batches) for task in range(1, SAMPLED_TASKS) for batch in range(batches))
