"""Before a resume: the data has to be unchanged, and lost indices are rebuilt."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.submission.source_check import check_data
from elasticdl.cli.submission.submit import Submission, prepare
from elasticdl.shared.data import IndexStore, Reader
from elasticdl.shared.data.indices.block import to_bytes
from elasticdl.shared.data.schema import options_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import open_store

MODEL = "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed(a, b, c): ...\n"


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """A planned job over two files, with validation data and its indices saved; its plan is cut in the second epoch."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("data").mkdir()
    for name in ("a", "b"):
        Path(f"data/{name}.csv").write_text("x;y\n" + f"7;{name}\n" + f"1;{name}\n" * 499)
    flags = TrainFlags(
        model_def="model.py",
        training_data="data",
        validation_data="data/b.csv",
        csv_delimiter=";",
        num_epochs=2,
        max_step=22,
    )
    submission = prepare(flags, tmp_path / "jobs", print)
    submission.save_indices(submission.spec.storage)
    return submission


def assert_whole(submission: Submission) -> None:
    for planned in (submission.data, submission.validation):
        assert planned is not None
        saved = IndexStore.of_job(submission.spec.storage, planned.sources, planned.options)
        assert to_bytes(saved.load_all()) == to_bytes(planned.indices)


def test_complete_indices_are_not_rebuilt(submission: Submission) -> None:
    told: list[str] = []
    check_data(submission.spec, told.append)
    assert told == []


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_lost_and_damaged_indices_are_rebuilt(submission: Submission, damage: bytes | None) -> None:
    storage = Path(submission.spec.storage.removeprefix("file://")) / "index"
    assert len(list(storage.iterdir())) == 2
    if damage is None:
        shutil.rmtree(storage)
    else:
        for file in storage.iterdir():
            file.write_bytes(damage)
    told: list[str] = []
    check_data(submission.spec, told.append)
    assert len(told) == 2
    assert all("Rebuilding it" in line for line in told)
    assert_whole(submission)


def test_an_index_with_another_checksum_is_refused(submission: Submission) -> None:
    shutil.rmtree(Path(submission.spec.storage.removeprefix("file://")) / "index")
    other = replace(submission.spec, checksum=submission.spec.checksum ^ 1)
    with pytest.raises(UserError, match="changed since job"):
        check_data(other, print)


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_copy_is_the_same_and_read_once(submission: Submission, name: str) -> None:
    file = Path(f"data/{name}.csv")
    content = file.read_bytes()
    os.unlink(file)
    with pytest.raises(UserError, match="does not exist any more"):
        check_data(submission.spec, print)
    file.write_bytes(content)
    spec, told = submission.spec, list[str]()
    check_data(spec, told.append)
    assert told == [f"{file.absolute()} was copied, touched or changed. Comparing its content."] * (1 + (name == "b"))
    # The result is saved, so a worker reads the file as it is.
    folder = Path(spec.storage.removeprefix("file://")) / "index"
    saved = IndexStore.of_job(spec.storage, spec.plan.sources, options_of(spec.data))
    before = sorted(folder.iterdir())
    reader = Reader(
        store=open_store("data"),
        sources=spec.plan.sources,
        schema=submission.data.schema,
        index=submission.data.indices.__getitem__,
        is_same=lambda number, now: saved.is_same(number, spec.data, now),
    )
    assert [len(reader.read(Shard(source=source, start=3, end=5))) for source in (0, 1)] == [2, 2]
    assert sorted(folder.iterdir()) == before
    file.write_bytes(content.replace(b"7;", b"8;"))
    with pytest.raises(UserError, match=rf"data/{name}\.csv changed since the job was planned"):
        reader.read(Shard(source="ab".index(name), start=3, end=5))


@pytest.mark.parametrize("change", [(b"7;a", b"8;a"), (b"x;y", b"y;x"), (b"7;a\n1;a", b"1;a\n7;a")])
def test_other_content_of_the_same_size_is_refused(submission: Submission, change: tuple[bytes, bytes]) -> None:
    file = Path("data/a.csv")
    file.write_bytes(file.read_bytes().replace(*change))
    with pytest.raises(UserError, match=r"data/a\.csv changed since job"):
        check_data(submission.spec, print)
    file.write_bytes(file.read_bytes() + b"1;a\n")
    with pytest.raises(UserError, match=r"data/a\.csv changed since job"):
        check_data(submission.spec, print)


def test_a_lost_index_of_a_copy(submission: Submission) -> None:
    shutil.rmtree(Path(submission.spec.storage.removeprefix("file://")) / "index")
    for name in ("a", "b"):
        Path(f"data/{name}.csv").write_bytes(Path(f"data/{name}.csv").read_bytes())
        os.utime(f"data/{name}.csv", (1, 1))
    told: list[str] = []
    check_data(submission.spec, told.append)
    (line,) = (line for line in told if line.endswith("and uses it as it is."))
    assert line.startswith(f"{Path('data/b.csv').resolve()} was copied"), "only training data has a checksum"
    told.clear()
    check_data(submission.spec, told.append)
    assert not any("Rebuilding" in line for line in told)
