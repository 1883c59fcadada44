"""The reader that a model file defines: how its function is called, and what its exceptions become."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.shared.data import ReaderOptions
from elasticdl.shared.data.custom import CheckedReader, plan_reader
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile
from elasticdl.shared.job.spec import ReaderSpec
from elasticdl.worker.model.user.calls import UserCodeError
from elasticdl.worker.model.user.data_reader import reader_of
from elasticdl.worker.model.user.module import load

pytestmark = pytest.mark.tensorflow

MODEL = """
def custom_model():
    pass


loss = optimizer = custom_model


class Reader:
    def __init__(self, name, count, fails=False):
        self.name, self.count, self.fails = name, count, fails

    def create_shards(self):
        return [(self.name, 0, self.count)]

    def read_records(self, task):
        for number in range(task.shard.start, task.shard.end):
            if self.fails and number == 3:
                raise OSError("the disk is gone")
            yield b"%d" % number


def custom_data_reader(data_origin, count=2, fails=False):
    return Reader(data_origin, count, fails)


def of_tasks(data_origin, records_per_task):
    return Reader(data_origin, records_per_task)


def broken(data_origin):
    return {}[data_origin]
"""


def reader(folder: Path, function: str = "custom_data_reader", **params: str) -> tuple[CheckedReader, ReaderSpec]:
    path = folder / "net.py"
    path.write_text(MODEL)
    spec = ReaderSpec(function=function, origin="orders", params=params, records_per_task=5)
    return reader_of(load(ModelFile(path=path)), spec), spec


@pytest.mark.parametrize(
    ("function", "params", "records"),
    [("custom_data_reader", {}, 2), ("custom_data_reader", {"count": "7"}, 7), ("of_tasks", {}, 5)],
)
def test_the_function_gets_the_data_and_its_parameters(
    tmp_path: Path, function: str, params: dict[str, str], records: int
) -> None:
    found, _ = reader(tmp_path, function, **params)
    (shard,) = found.shards()
    assert (shard.name, shard.records) == ("orders", records)
    assert found.read(shard.part(1, 2)) == ([b"1"], False)


def test_what_read_records_raises_is_shown_with_the_users_lines(tmp_path: Path) -> None:
    found, spec = reader(tmp_path, count="9", fails="True")
    message = r"read_records\(\) of net.py raised OSError at net.py:\d+: the disk is gone"
    with pytest.raises(UserCodeError, match=message) as error:
        plan_reader(found, spec, ReaderOptions(), stride=4)
    assert 'raise OSError("the disk is gone")' in error.value.traceback


def test_what_the_function_raises_is_shown(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"broken\(\) of net.py raised KeyError"):
        reader(tmp_path, "broken")[0].shards()


def test_a_function_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="defines no 'other'"):
        reader(tmp_path, "other")
