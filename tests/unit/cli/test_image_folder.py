"""The folder from which a user's own image is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.cli.images.folder import check_folder, model_files, write_folder
from elasticdl.shared.errors import UserError


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "zoo" / "digits.py"
    path.parent.mkdir()
    path.write_text("def custom_model(): ...\n")
    return path


def test_a_new_folder_has_all_that_a_build_needs(tmp_path: Path, example: Path) -> None:
    folder = tmp_path / "new" / "models"
    written = write_folder(folder, base_image="workers:7", example=example)
    assert written == {"digits.py": True, "Dockerfile": True, "requirements.txt": True, ".dockerignore": True}
    assert {path.name for path in folder.iterdir()} == written.keys()
    assert "ARG BASE=workers:7\nFROM ${BASE}\n" in (folder / "Dockerfile").read_text()
    check_folder(folder)


def test_the_files_of_a_user_are_kept(tmp_path: Path, example: Path) -> None:
    (tmp_path / "own.py").write_text("own\n")
    (tmp_path / "requirements.txt").write_text("scipy\n")
    written = write_folder(tmp_path, base_image="workers:7", example=example)
    assert written == {"Dockerfile": True, "requirements.txt": False, ".dockerignore": True}
    assert (tmp_path / "requirements.txt").read_text() == "scipy\n"
    assert model_files(tmp_path) == ["own.py"]


def test_a_dockerfile_is_not_overwritten(tmp_path: Path, example: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(UserError, match="Dockerfile exists"):
        write_folder(tmp_path, base_image="workers:7", example=example)
    assert [path.name for path in tmp_path.glob("*.py")] == []


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path, example: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/models can't be written: Not a directory"):
        write_folder(tmp_path / "file" / "models", base_image="workers:7", example=example)


def test_a_build_needs_a_folder_with_a_dockerfile(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no folder"):
        check_folder(tmp_path / "absent")
    with pytest.raises(UserError, match="has no Dockerfile"):
        check_folder(tmp_path)
