"""What is in the data is what the user's model gets: ids, dates, lists, from several files."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from tests.e2e.elastic import Elastic, write_lines
from tests.e2e.failing import fails
from tests.e2e.models import write_model

RECORDS = 600
IDS: list[int | None] = [None if number == 7 else (1 << 53) + 1 + 2 * number for number in range(RECORDS)]
"""Odd, so that each would be rounded to the id of a neighbour."""

SEES = """
import json
import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((1,))
    return keras.Model(inputs, keras.layers.Dense(1)(inputs))


def loss(labels, predictions):
    return tf.reduce_mean(tf.square(labels - predictions[:, 0]))


def optimizer():
    return keras.optimizers.SGD(0.01)


def _write(*columns):
    with open("seen.jsonl", "a") as file:
        for record in zip(*(column.numpy().tolist() for column in columns)):
            file.write(json.dumps(record, default=bytes.decode) + chr(10))
"""

FEED_X = """

def feed_batch(records, mode, metadata):
    return records["x"][:, None], records["x"]
"""

LISTS = (
    SEES.replace("import keras\n", "import keras\nfrom elasticdl.layers import Embedding\n").split("def custom_model")[
        0
    ]
    + """
class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.items = Embedding(4, input_dim=50, combiner="mean")
        self.out = keras.layers.Dense(1)

    def call(self, features):
        return self.out(tf.concat([self.items(features["items"]), features["vector"]], 1))


def custom_model():
    return Model()


def loss"""
    + SEES.split("def loss")[1].split("def _write")[0]
    + """
def feed(dataset, mode, metadata):
    def split(record):
        return {"items": record["items"], "vector": record["vector"]}, tf.cast(record["day"], tf.float32)

    return dataset.map(split)
"""
)


def seen(folder: Path) -> list[list[object]]:
    return [json.loads(line) for line in (folder / "seen.jsonl").read_text().splitlines()]


def test_ids_of_several_csv_files_arrive_with_all_bits(elastic: Elastic) -> None:
    writes = "    tf.py_function(_write, [records['id'], records['zip']], [])\n"
    write_model(elastic.folder, SEES + FEED_X.replace("    return", writes + "    return"))
    rows = [f"{'' if value is None else value}\t{number:05d}\tnote, {number}\t0.5" for number, value in enumerate(IDS)]
    write_lines(elastic.folder / "a" / "a.tsv", ["id\tzip\tnote\tx", *rows[:200]])
    write_lines(elastic.folder / "b.tsv", ["id\tzip\tnote\tx", *rows[200:]])
    flags = ["--model_def=model.py", "--training_data=a", "--training_data=b.tsv", "--num_workers=2"]
    fails(elastic, *flags, says=["'id' (1 of type int64", "record 7", "a.tsv", "--fill_missing id=-1"])
    outcome = elastic.train(
        *flags,
        "--columns=id,zip,x",
        "--column_types",
        "zip=string,x=float32",
        "--fill_missing=id=-1",
        "--validation_data=b.tsv",
    )
    assert outcome.report["audit"]["records"] == RECORDS
    for line in ("id: int64 (1 missing, filled with -1)", "zip: string", "x: float32"):
        assert f"  {line}\n" in outcome.output
    expected = {(-1 if value is None else value, f"{number:05d}") for number, value in enumerate(IDS)}
    assert {tuple(record) for record in seen(elastic.folder)} == expected


def test_a_value_that_does_not_fit_its_type_is_refused_before_anything_starts(elastic: Elastic) -> None:
    write_model(
        elastic.folder, f"{SEES}\n\ndef feed_batch(records, mode, metadata):\n    return records['x'], records['x']\n"
    )
    write_lines(elastic.folder / "train.csv", ["id,x", "1,1.5", "x7,2.5"])
    flags = ["--model_def=model.py", "--training_data=train.csv"]
    says = ["train.csv, record 1", "column 'id' is not int64: 'x7'"]
    fails(elastic, *flags, "--column_types=id=int64", says=says)
    assert not list(elastic.jobs.glob("*/logs"))


def test_lists_and_dates_of_parquet(elastic: Elastic) -> None:
    write_model(elastic.folder, LISTS)
    numbers = range(RECORDS)
    table = {
        "id": pa.array(IDS, pa.int64()),
        "day": pa.array([datetime.date(1970, 1, 1 + number % 5) for number in numbers]),
        "items": pa.array([[*range(number % 4)] for number in numbers], pa.list_(pa.int64())),
        "vector": pa.array([[0.5, 0.25] for _ in numbers], pa.list_(pa.float32(), 2)),
        "unused": pa.array([{"x": 1} for _ in numbers]),
    }
    pq.write_table(pa.table(table), elastic.folder / "train.parquet", row_group_size=150)
    flags = ["--model_def=model.py", "--training_data=train.parquet", "--num_workers=2"]
    outcome = elastic.train(*flags, "--columns=id,day,items,vector", "--fill_missing=id=-1")
    assert outcome.report["audit"]["records"] == RECORDS
    for line in ("day: int64 (was date32, days)", "items: list<int64>", "vector: float32[2]"):
        assert f"  {line}\n" in outcome.output
