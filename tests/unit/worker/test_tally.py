"""What a worker counts while it works on a task."""

from __future__ import annotations

from elasticdl.worker.core.tally import Tally


def test_a_tally_counts_batches_and_phases() -> None:
    tally = Tally()
    tally.add_batch(0, records=3, loss=0.5)
    tally.add_batch(1, records=4)
    tally.add_batch(0, records=3, loss=0.7)  # Computed again: a ps was restored.
    tally.add_seconds({"read": 1.0})
    tally.add_seconds({"read": 0.5, "pull": 2.0})
    assert (tally.records, tally.batches, tally.loss_sum) == (7, 2, 0.5)
    assert tally.seconds == {"read": 1.5, "pull": 2.0}
