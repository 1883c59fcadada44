"""The user's feed, one batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.ragged import Columns, Ragged
from elasticdl.shared.errors import UserError
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.feeder import BatchFeeder

from .conftest import WriteModule

pytestmark = pytest.mark.tensorflow

MODEL = """
def custom_model():
    return keras.Sequential([keras.Input((1,)), layers.Dense(1)])

del feed_batch

def parse(line):
    number = tf.strings.to_number(line)
    if number > 5.0:
        number = number + 0.0
    return tf.reshape(number, [1]), tf.reshape(number, [1])
"""


def lines(*numbers: int) -> list[bytes]:
    return [str(number).encode() for number in numbers]


def feeder_of(write_module: WriteModule, feed: str, mode: str = "train", **options: Any) -> BatchFeeder:
    body = MODEL + f"\ndef feed(dataset, mode, metadata):\n    return {feed}\n"
    return BatchFeeder(write_module(body), mode, None, **options)


@pytest.mark.parametrize("eager", [False, True])
def test_a_column_that_does_not_exist_is_answered_with_those_that_do(write_module: WriteModule, eager: bool) -> None:
    body = (
        MODEL.replace("del feed_batch\n", "")
        + "\ndef feed_batch(records, mode, metadata):\n    return records['price']\n"
    )
    feeder = BatchFeeder(write_module(body), "train", None, eager=eager)
    with pytest.raises(UserCodeError, match="raised KeyError") as caught:
        feeder.feed({"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)})
    assert caught.value.hint == "The data has the columns a, b."


@pytest.mark.parametrize("eager", [False, True])
def test_shuffle_and_filter_stay_inside_the_batch(write_module: WriteModule, eager: bool) -> None:
    feed = "dataset.map(parse).filter(lambda x, y: x[0] < 8).shuffle(100)"
    feeder = feeder_of(write_module, feed, eager=eager)
    first = feeder.feed(lines(*range(10)))
    assert first is not None
    assert first.count == 8
    assert sorted(first.features.numpy().ravel()) == list(range(8))
    last = feeder.feed(lines(1, 2, 9))
    assert last is not None
    assert last.count == 2
    assert last.spec == first.spec
    assert feeder.feed(lines(8, 9)) is None
    assert feeder.feed(lines(3)) is not None
    assert eager or feeder.traces == 1


@pytest.mark.parametrize(
    ("feed", "name"),
    [
        ("dataset.map(parse).batch(4)", "batch"),
        ("dataset.map(parse).repeat(2)", "repeat"),
        ("dataset.cache().map(parse)", "cache"),
        ("dataset.shard(2, 0).map(parse)", "shard"),
        ("dataset.map(parse).padded_batch(4)", "padded_batch"),
    ],
)
@pytest.mark.parametrize("eager", [False, True])
def test_what_would_change_the_batches_is_refused_by_name(
    write_module: WriteModule, feed: str, name: str, eager: bool
) -> None:
    with pytest.raises(UserError, match=rf"dataset\.{name}\(\), which is refused"):
        feeder_of(write_module, feed, eager=eager).feed(lines(1, 2))


def test_more_elements_than_records_are_refused(write_module: WriteModule) -> None:
    feeder = feeder_of(write_module, "dataset.map(parse).concatenate(dataset.map(parse))")
    with pytest.raises(UserError, match="made 4 elements of 2 records"):
        feeder.feed(lines(1, 2))


def test_parquet_rows_reach_feed_as_dicts_of_scalars(write_module: WriteModule) -> None:
    feeder = feeder_of(write_module, "dataset.map(lambda row: ({'n': row['n'], 's': row['s']}, row['n']))")
    batch = feeder.feed({"n": np.arange(3), "s": np.array(["a", "b", "c"], dtype=object)})
    assert batch is not None
    assert batch.features["s"].numpy().tolist() == [b"a", b"b", b"c"]
    assert batch.labels.numpy().tolist() == [0, 1, 2]


def test_labels_and_weights_do_not_count_in_mode_predict(write_module: WriteModule) -> None:
    batch = feeder_of(write_module, "dataset.map(parse)", mode="predict").feed(lines(4))
    assert batch is not None
    assert batch.labels is None and batch.weights is None
    assert batch.spec.labels is None


def test_a_shuffle_is_refused_in_mode_predict(write_module: WriteModule) -> None:
    with pytest.raises(UserError, match=r"calls dataset.shuffle\(\) in mode 'predict'"):
        feeder_of(write_module, "dataset.map(parse).shuffle(9)", mode="predict").feed(lines(4))


def test_predict_takes_features_alone(write_module: WriteModule) -> None:
    batch = feeder_of(write_module, "dataset.map(lambda line: parse(line)[0])", mode="predict").feed(lines(4))
    assert batch is not None
    assert batch.labels is None
    with pytest.raises(UserError, match="must give \\(features, labels\\)"):
        feeder_of(write_module, "dataset.map(lambda line: parse(line)[0])").feed(lines(4))


def test_feed_batch_gets_columns_and_a_changed_type_is_named(write_module: WriteModule) -> None:
    body = """
    def custom_model():
        return keras.Sequential([keras.Input((1,)), layers.Dense(1)])

    def feed_batch(records, mode, metadata):
        label = records.pop("y")
        if tf.size(label) > 2:
            label = label * 1
        return records["x"], label
    """
    feeder = BatchFeeder(write_module(body), "train", None)
    for count in (4, 1):
        batch = feeder.feed({"x": np.ones((count, 1), np.float32), "y": np.arange(count)})
        assert batch is not None
        assert batch.count == count
        assert batch.spec.features.shape.as_list() == [None, 1]
    assert feeder.traces == 1
    with pytest.raises(UserError, match="column 'y' is float64 in this batch and was int64"):
        feeder.feed({"x": np.ones((1, 1), np.float32), "y": np.array([0.5])})


def test_an_exception_in_feed_shows_only_the_users_lines(write_module: WriteModule) -> None:
    body = MODEL + (
        "\ndef feed(dataset, mode, metadata):\n    return broken(dataset)\n"
        "\ndef broken(dataset):\n    raise KeyError('no such column')\n"
    )
    with pytest.raises(UserCodeError, match=r"feed\(\) of model.py raised KeyError at model.py:\d+") as caught:
        BatchFeeder(write_module(body), "train", None).feed(lines(1))
    assert "in broken" in caught.value.traceback
    assert "feeder.py" not in caught.value.traceback


def test_an_exception_in_a_mapped_function_names_its_line(write_module: WriteModule) -> None:
    body = MODEL + (
        "\ndef feed(dataset, mode, metadata):\n    return dataset.map(broken)\n"
        "\ndef broken(line):\n    raise KeyError('no such column')\n"
    )
    with pytest.raises(UserCodeError, match=r"raised KeyError at model.py:\d+: 'no such column'") as caught:
        BatchFeeder(write_module(body), "train", None).feed(lines(1))
    assert "in broken" in caught.value.traceback
    assert "tensorflow" not in caught.value.traceback


def test_an_error_while_the_graph_runs_names_the_users_line(write_module: WriteModule) -> None:
    body = MODEL + (
        "\ndef feed_batch(records, mode, metadata):\n"
        "    numbers = tf.strings.to_number(records)\n    return numbers, numbers\n"
    )
    feeder = BatchFeeder(write_module(body), "train", None)
    message = (
        r"feed_batch\(\) of model.py raised InvalidArgumentError at model.py:\d+: StringToNumberOp could not .*: abc$"
    )
    with pytest.raises(UserCodeError, match=message) as caught:
        feeder.feed([b"abc"])
    assert "tf.strings.to_number(records)" in caught.value.traceback
    assert "feeder.py" not in caught.value.traceback


def test_an_error_while_a_mapped_function_runs_says_what_was_wrong(write_module: WriteModule) -> None:
    # TensorFlow keeps no line numbers of functions inside a dataset.
    message = r"feed\(\) of model.py raised InvalidArgumentError: Error in .*: StringToNumberOp could not .*: abc$"
    with pytest.raises(UserCodeError, match=message):
        feeder_of(write_module, "dataset.map(parse)").feed([b"abc"])


def test_an_empty_batch_needs_no_feed(write_module: WriteModule) -> None:
    assert feeder_of(write_module, "dataset.map(parse)").feed([]) is None


@pytest.mark.parametrize("eager", [False, True])
def test_ragged_columns_stay_ragged_in_a_dataset(write_module: WriteModule, eager: bool) -> None:
    feed = "dataset.map(lambda record: ({'ids': record['ids'] + 1, 'x': record['x']}, record['x'][0]))"
    feeder = feeder_of(write_module, feed, eager=eager)
    batches: list[list[list[int]]] = [[[1], [], [2, 3]], [[], []], [[7]]]
    for lists in batches:
        columns: Columns = {
            "ids": Ragged(
                values=np.array([value for each in lists for value in each], np.int64),
                splits=np.cumsum([0, *map(len, lists)]),
            ),
            "x": np.zeros((len(lists), 2), np.float32),
        }
        batch = feeder.feed(ColumnBatch.of(columns))
        assert batch is not None
        assert batch.count == len(lists)
        assert batch.features["ids"].to_list() == [[value + 1 for value in each] for each in lists]
        assert batch.features["x"].shape == (len(lists), 2)
    assert eager or feeder.traces == 1
