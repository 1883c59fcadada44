"""Data that the model file reads itself: each record is trained on once in each epoch, and predicted once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow.parquet as parquet
from tests.e2e.elastic import Elastic
from tests.e2e.models import write_model

MODEL = """
import sqlite3

import keras


class Table:
    def __init__(self, file):
        self.database = sqlite3.connect(file)

    def create_shards(self):
        query = "select day, min(number), count(*) from orders group by day order by day"
        return self.database.execute(query).fetchall()

    def read_records(self, task):
        query = "select number, a, b, y from orders where day = ? and number >= ? and number < ? order by number"
        for number, a, b, y in self.database.execute(query, (task.shard.name, task.shard.start, task.shard.end)):
            yield {"number": number, "a": a, "b": b, "y": y}


def table(data_origin, suffix):
    return Table(data_origin + suffix)


def custom_model():
    inputs = [keras.Input((1,), name=name) for name in ("a", "b")]
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Concatenate()(inputs)))
    model.compile(keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"])
    return model
"""


def write_database(file: Path, records: int) -> None:
    """Records of three days, each with numbers from 10 on."""
    with sqlite3.connect(file) as database:
        database.execute("create table orders(day text, number int, a real, b real, y real)")
        rows = [(n % 3, 10 + n // 3, (n % 7) / 7, (n % 11) / 11) for n in range(records)]
        values = [(f"day {day}", number, a, b, 2 * a - b) for day, number, a, b in rows]
        database.executemany("insert into orders values (?, ?, ?, ?, ?)", values)
    database.close()


def test_a_table_of_a_database_trains_evaluates_and_predicts(elastic: Elastic) -> None:
    write_database(elastic.folder / "train.db", 2000)
    write_database(elastic.folder / "new.db", 310)
    write_model(elastic.folder, MODEL)
    flags = ("--model_def=model.py", "--custom_data_reader=table", "--data_reader_params=suffix='.db'", "--label=y")
    reading = ("--columns=number,a,b,y", "--num_workers=2")
    trained = elastic.train(
        *flags, *reading, "--training_data=train", "--validation_data=new", "--num_epochs=2", "--output=out"
    )
    assert "Reading train and new with table()" in trained.output
    assert trained.report["audit"]["exact"]
    assert trained.report["audit"]["records"] == 4000

    predicted = elastic.run(
        *("predict", *flags, *reading, "--model=out", "--prediction_data=new"),
        *("--output=predictions", "--keep_columns=number"),
    )
    assert predicted.exit_code == 0, predicted.output
    numbers = parquet.read_table(elastic.folder / "predictions").column("number").to_pylist()
    assert sorted(numbers) == sorted(10 + n // 3 for n in range(310))
