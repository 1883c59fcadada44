"""The history as Keras names it, and as a table."""

from __future__ import annotations

from elasticdl.api import History

EPOCHS = [
    {
        "epoch": number,
        "loss": 1.0 / number,
        "metrics": {"auc": 0.5},
        "validation": {"loss": 0.7, "auc": 0.6} if number > 1 else {},
        "validation_step": None,
        "batches": 10,
        "records": 100,
        "seconds": 2.0,
    }
    for number in (1, 2)
]


def test_epochs_have_the_names_of_keras() -> None:
    assert History(EPOCHS, []).history == {
        "loss": [1.0, 0.5],
        "auc": [0.5, 0.5],
        "val_loss": [None, 0.7],
        "val_auc": [None, 0.6],
    }


def test_a_data_frame_has_a_row_per_epoch() -> None:
    frame = History(EPOCHS, []).to_pandas()
    assert list(frame.index) == [1, 2]
    assert frame["val_auc"][2] == 0.6
    assert frame["records"].sum() == 200
