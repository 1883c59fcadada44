"""Finished files get their names in one step, and nothing is left of processes that were killed before that."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.worker.model.export.export import PREFIX, exchange, replace, unfinished


def model(folder: Path, content: str) -> Path:
    folder.mkdir()
    Path(folder, "weights").write_text(content)
    return folder


def left(folder: Path) -> list[Path]:
    return list(folder.glob(f"{PREFIX}*"))


def kill_an_export(output: Path, *, between_renames: bool = False) -> None:
    """What a process leaves that is killed while it exports: a folder on which it has no lock any more."""
    folder = output / f"{PREFIX}killed"
    model(folder, "half a model")
    if between_renames:
        (output / "saved_model").rename(folder / "old-saved_model")


def test_a_folder_takes_the_place_of_another_one_in_one_step(tmp_path: Path) -> None:
    old, new = model(tmp_path / "old", "old"), model(tmp_path / "new", "new")
    assert exchange(new, old), "the file system of this test can"
    assert (old / "weights").read_text() == "new"
    assert (new / "weights").read_text() == "old"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_finished_model_gets_its_name(tmp_path: Path, *, is_there: bool) -> None:
    if is_there:
        model(tmp_path / "saved_model", "former")
        (tmp_path / "model.keras").write_text("former")
    with unfinished(tmp_path) as folder:
        model(folder / "saved_model", "present")
        (folder / "model.keras").write_text("present")
        for name in ("saved_model", "model.keras"):
            replace(folder / name, tmp_path / name)
    assert (tmp_path / "saved_model" / "weights").read_text() == "present"
    assert (tmp_path / "model.keras").read_text() == "present"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.keras", "saved_model"]


def test_what_a_killed_export_has_left_is_removed(tmp_path: Path) -> None:
    kill_an_export(tmp_path)
    with unfinished(tmp_path) as folder:
        assert left(tmp_path) == [folder]
    assert left(tmp_path) == []


def test_an_export_that_was_killed_between_two_renames_does_not_lose_the_former_model(tmp_path: Path) -> None:
    model(tmp_path / "saved_model", "former")
    kill_an_export(tmp_path, between_renames=True)
    assert not (tmp_path / "saved_model").exists()
    with unfinished(tmp_path):
        assert (tmp_path / "saved_model" / "weights").read_text() == "former"


def test_the_folder_of_a_living_export_stays(tmp_path: Path) -> None:
    with unfinished(tmp_path) as first:
        with unfinished(tmp_path) as second:
            assert set(left(tmp_path)) == {first, second}
        assert left(tmp_path) == [first]
