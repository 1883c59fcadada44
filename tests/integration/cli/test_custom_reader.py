"""The launcher plans data that only the model file can read: a process of the worker reads it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.local.model_check import UnfinishedError
from elasticdl.cli.submission.source_check import check_data
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.data import record_hash
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.plan import Shuffle

MODEL = """
import os


def custom_model(): ...
def loss(a, b): ...
def optimizer(): ...
def feed(a, b, c): ...


class Numbers:
    def __init__(self, count):
        self.count = count

    def create_shards(self):
        print("counting", self.count)
        return [("numbers", 5, self.count)]

    def read_records(self, task):
        if self.count == 3:
            os._exit(7)
        return [b"%d" % number for number in range(task.shard.start, task.shard.end)]


def custom_data_reader(data_origin, factor):
    return Numbers(int(data_origin) * factor)
"""


@pytest.fixture(autouse=True)
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)


def flags_for(origin: str, **more: Any) -> TrainFlags:
    params = "factor=1" if origin == "3" else "factor=10"
    return TrainFlags(model_def="model.py", training_data=origin, data_reader_params=params, minibatch_size=4, **more)


def test_sources_checksum_and_indices_come_from_the_reader(tmp_path: Path) -> None:
    told: list[str] = []
    # Three epochs of 26 batches, cut in the second epoch: in the middle of a task.
    flags = flags_for("10", validation_data="2", num_epochs=3, max_step=25 + 17, shuffle=Shuffle.NONE)
    submission = prepare(flags, tmp_path / "jobs", told.append)
    assert told == ["Reading 10 and 2 with custom_data_reader() of " + str(tmp_path / "model.py"), *told[1:]]
    # On a busy machine the user also reads that the process is slow.
    printed = [line for line in told[1:] if "has not finished after" not in line]
    assert printed == ["counting 100", "counting 20"]
    spec = submission.spec
    assert [source.uri for source in spec.plan.sources] == ["shard:numbers[5:105]"]
    assert spec.validation is not None and spec.validation.records == 20
    records = [shard for task in spec.plan.task_ids() for shard in spec.plan.shards(task)]
    expected = sum(
        record_hash(0, number, b"%d" % (number + 5)) for shard in records for number in range(shard.start, shard.end)
    )
    assert spec.checksum == expected % 2**64

    submission.save_indices(spec.storage)
    check_data(spec, told.append)
    shutil.rmtree(spec.storage.removeprefix("file://"))
    with pytest.raises(UserError, match="An index of data that the model file reads can't be rebuilt"):
        check_data(spec, told.append)


def test_a_reader_that_crashes_is_named(tmp_path: Path) -> None:
    message = "its process ended with exit code 7.* while running read_records"
    with pytest.raises(UnfinishedError, match=f"the reading of the data did not finish: {message}"):
        prepare(flags_for("3"), tmp_path / "jobs", print)
