"""The checksum of a plan is the sum of the hashes of its records, also where ``--max_step`` cuts a task."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elasticdl.cli.submission import submit
from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.data import Reader
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.plan import Shuffle
from elasticdl.shared.storage import open_store

MODEL = "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed(a, b, c): ...\n"
RECORDS = (700, 1, 299)


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("data").mkdir()
    for name, records in enumerate(RECORDS):
        Path(f"data/{name}.csv").write_text("x\n" + "".join(f"{number}\n" for number in range(records)))


@pytest.mark.parametrize("shuffle", Shuffle)
@pytest.mark.parametrize("max_step", [0, 1, 20, 43, 50])
def test_of_every_shuffle(tmp_path: Path, shuffle: Shuffle, max_step: int) -> None:
    flags = TrainFlags(
        model_def="model.py", training_data="data", num_epochs=2, max_step=max_step, shuffle=shuffle, seed=7
    )
    submission = prepare(flags, tmp_path / "jobs", print)
    plan, data = submission.spec.plan, submission.data
    reader = Reader(
        store=open_store(str(tmp_path)), sources=data.sources, schema=data.schema, index=data.indices.__getitem__
    )
    blocks = [reader.read(shard) for task in plan.task_ids() for shard in plan.shards(task)]
    assert sum(map(len, blocks)) == plan.records
    assert sum(block.take(range(len(block))).checksum for block in blocks) % 2**64 == submission.spec.checksum


def test_the_default_shuffles_all_records_where_that_is_cheap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = TrainFlags(model_def="model.py", training_data="data")
    assert prepare(flags, tmp_path / "jobs", print).spec.plan.shuffle is Shuffle.GLOBAL
    with monkeypatch.context() as patch:
        patch.setattr(submit, "_GLOBAL_BYTES_MAX", 1000)
        assert prepare(flags, tmp_path / "jobs", print).spec.plan.shuffle is Shuffle.RECORDS
    Path("data/more.csv.gz").write_bytes(gzip.compress(b"x\n1\n"))
    assert prepare(flags, tmp_path / "jobs", print).spec.plan.shuffle is Shuffle.RECORDS


def test_readers_in_the_model_file_have_no_global_shuffle(tmp_path: Path) -> None:
    Path("model.py").write_text(MODEL + "def custom_data_reader(data_origin): ...\n")
    flags = TrainFlags(model_def="model.py", training_data="data", shuffle=Shuffle.GLOBAL)
    with pytest.raises(UserError, match=r"--shuffle=global is not possible with custom_data_reader\(\) of .*model.py"):
        prepare(flags, tmp_path / "jobs", print)
