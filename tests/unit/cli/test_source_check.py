"""Before a resume: the data has to be unchanged, and lost indices are rebuilt."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.source_check import check_sources, rebuild_indices
from elasticdl.cli.submission.submit import Submission, prepare
from elasticdl.shared.data import IndexStore
from elasticdl.shared.data.index_store import to_bytes
from elasticdl.shared.errors import UserError

MODEL = "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed(a, b, c): ...\n"


@pytest.fixture
def submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submission:
    """A planned job over two files, with validation data and its indices saved; its plan is cut in the second epoch."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("data").mkdir()
    for name in ("a", "b"):
        Path(f"data/{name}.csv").write_text("x;y\n" + f"1;{name}\n" * 500)
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


def run_of(submission: Submission, tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "jobs", submission.spec.job)


def assert_whole(submission: Submission) -> None:
    saved = IndexStore.of_job(submission.spec.storage)
    for planned in (submission.data, submission.validation):
        assert planned is not None
        for index in planned.indices:
            assert to_bytes(saved.load(index.source, index.number, planned.options)) == to_bytes(index)


def test_complete_indices_are_not_rebuilt(submission: Submission, tmp_path: Path) -> None:
    told: list[str] = []
    rebuild_indices(run_of(submission, tmp_path), submission.spec, told.append)
    assert told == []


@pytest.mark.parametrize("damage", [b"", b"PK", None])
def test_lost_and_damaged_indices_are_rebuilt(submission: Submission, tmp_path: Path, damage: bytes | None) -> None:
    storage = Path(submission.spec.storage.removeprefix("file://")) / "index"
    assert len(list(storage.iterdir())) == 3
    if damage is None:
        shutil.rmtree(storage)
    else:
        for file in storage.iterdir():
            file.write_bytes(damage)
    told: list[str] = []
    check_sources(run_of(submission, tmp_path), submission.spec)
    rebuild_indices(run_of(submission, tmp_path), submission.spec, told.append)
    assert len(told) == 3
    assert all("Rebuilding it" in line for line in told)
    assert_whole(submission)


def test_an_index_with_another_checksum_is_refused(submission: Submission, tmp_path: Path) -> None:
    shutil.rmtree(Path(submission.spec.storage.removeprefix("file://")) / "index")
    other = replace(submission.spec, checksum=submission.spec.checksum ^ 1)
    with pytest.raises(UserError, match="changed since job"):
        rebuild_indices(run_of(submission, tmp_path), other, print)


def test_a_copy_counts_as_changed_and_the_hint_says_what_is_compared(submission: Submission, tmp_path: Path) -> None:
    file, kept = Path("data/a.csv"), Path("a.csv.kept")
    shutil.copy2(file, kept)
    file.write_text(kept.read_text())
    with pytest.raises(UserError, match="changed since job") as refused:
        check_sources(run_of(submission, tmp_path), submission.spec)
    assert "size, modification time and inode" in refused.value.hint and "cp -p" in refused.value.hint
    shutil.copy2(kept, file)  # as cp -p does it
    check_sources(run_of(submission, tmp_path), submission.spec)
    os.unlink(file)
    with pytest.raises(UserError, match="does not exist any more"):
        check_sources(run_of(submission, tmp_path), submission.spec)
