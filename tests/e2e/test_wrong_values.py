"""Values that the model can't take are reported with file and record, wherever the model finds out."""

from __future__ import annotations

import pytest
from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.models import write_model

MODEL = """
import keras

label = "kind"


def custom_model():
    item = keras.Input((1,), name="item", dtype="int64")
    row = keras.layers.Flatten()(keras.layers.Embedding(5, 4)(item))
    model = keras.Model(item, keras.layers.Dense(3, activation="softmax")(row))
    model.compile("sgd", loss="sparse_categorical_crossentropy")
    return model
"""


@pytest.mark.parametrize(
    ("item", "kind", "message"),
    [(7, 1, "= 7 is not in [0, 5)"), (-1, 1, "= -1 is not in [0, 5)"), (2, 3, "a label value of 3 which is outside")],
)
@pytest.mark.parametrize("record", [3, 90])
def test_the_record_is_named(elastic: Elastic, item: int, kind: int, message: str, record: int) -> None:
    write_model(elastic.folder, MODEL)
    lines = [f"{number % 5},{number % 3}" for number in range(100)]
    lines[record] = f"{item},{kind}"
    write_lines(elastic.folder / "train.csv", ["item,kind", *lines])
    flags = ("--model_def=model.py", "--training_data=train.csv", "--num_workers=1", "--minibatch_size=16")
    done = elastic.run("train", *flags, "--shuffle=none")
    assert done.exit_code != 0
    text = " ".join(done.output.split())
    assert f"record {record} (from 0) of" in text and message in text, done.output
