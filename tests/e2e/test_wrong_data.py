"""Data and feeds that can't be trained with: each gets one message that names the file and the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.e2e.elastic import Elastic, check_exact, write_lines
from tests.e2e.failing import FLAGS, fails
from tests.e2e.models import FEED, LINEAR, SLOW, write_data, write_model

CLASSES = """
import keras
import tensorflow as tf


def custom_model():
    inputs = keras.Input((1,))
    return keras.Model(inputs, keras.layers.Dense(10)(inputs))


def loss(labels, predictions):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer():
    return keras.optimizers.SGD(0.05)


def feed_batch(records, mode, metadata):
    return tf.cast(records["a"], tf.float32)[:, None], tf.cast(records["label"], tf.int32)
"""


def test_a_label_out_of_range_names_the_records(elastic: Elastic) -> None:
    write_model(elastic.folder, CLASSES)
    lines = [f"{number / 1000},{number % 10}" for number in range(1000)]
    lines[300] = "0.3,10"
    write_lines(elastic.folder / "data" / "train.csv", ["a,label", *lines])
    fails(elastic, *FLAGS, "--shuffle=none", says=["label", "train.csv", "batch 4"])


@pytest.mark.parametrize("operation", ["repeat(2)", "batch(4)"])
def test_a_feed_that_does_more_than_one_batch_is_refused_by_name(elastic: Elastic, operation: str) -> None:
    write_model(elastic.folder, FEED.replace("dataset.map(parse)", f"dataset.map(parse).{operation}"))
    write_data(elastic.folder, records=100)
    fails(elastic, *FLAGS, says=["model.py", f"dataset.{operation.split('(')[0]}()", "refused"])


def test_headers_that_differ_name_both_files(elastic: Elastic) -> None:
    write_model(elastic.folder)
    write_data(elastic.folder, records=10, name="data/a.csv")
    other = write_data(elastic.folder, records=10, name="data/b.csv")
    other.write_text(other.read_text().replace("a,b,c,y", "a,b,d,y"))
    fails(elastic, *FLAGS, says=["a.csv has a, b, c, y", "b.csv has a, b, d, y"])


def test_data_that_changes_while_the_job_runs_is_noticed(elastic: Elastic) -> None:
    write_model(elastic.folder, SLOW)
    data = write_data(elastic.folder, records=20_000)
    flags = [*FLAGS, "--minibatch_size=32"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        write_data(elastic.folder, records=20_000, seed=99)
        assert running.wait() == 1, running.output
    assert data.name in running.output
    assert "changed" in running.output
    assert "Traceback" not in running.output


def test_data_that_is_touched_while_the_job_runs_is_the_same(elastic: Elastic) -> None:
    write_model(elastic.folder, SLOW)
    data = write_data(elastic.folder, records=5000)
    with elastic.start("train", *FLAGS, "--minibatch_size=32", "--num_epochs=2") as running:
        running.wait_for_progress()
        data.write_bytes(data.read_bytes())
        elastic.remove_delay()
        assert running.wait() == 0, running.output


def test_a_data_set_of_awkward_files_is_trained_exactly(elastic: Elastic) -> None:
    """No records, one record, no last line break, Windows line ends, quoted numbers, line breaks in quotes."""
    write_model(elastic.folder, LINEAR)
    add_note(write_data(elastic.folder, records=0, name="data/a.csv"), "")
    add_note(write_data(elastic.folder, records=130, name="data/b.csv"), '"two\nlines, ""quoted"""')
    without = add_note(write_data(elastic.folder, records=65, name="data/c.csv"), "none")
    without.write_text(without.read_text().rstrip("\n"))
    windows = add_note(write_data(elastic.folder, records=64, name="data/d.csv"), "")
    windows.write_bytes(windows.read_bytes().replace(b"\n", b"\r\n"))
    write_lines(elastic.folder / "data" / "e.csv", ["a,b,c,y,note", '"0.1","0.2",0.3,-0.4,""'])
    outcome = elastic.train(*FLAGS, "--num_epochs=2")
    check_exact(outcome)
    assert outcome.report["audit"]["records"] == 2 * (130 + 65 + 64 + 1)


def add_note(path: Path, note: str) -> Path:
    """Add a column to a CSV file, the same text in each of its records."""
    header, *lines = path.read_text().splitlines()
    return write_lines(path, [f"{header},note", *(f"{line},{note}" for line in lines)])
