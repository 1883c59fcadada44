"""The folder from which a user's own image is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.cli.commands.image_folder import MODEL_ZOO, init, write_folder
from elasticdl.shared.errors import UserError

DIGEST = "sha256:" + "0" * 64


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


def test_the_files_of_a_user_are_kept(tmp_path: Path, example: Path) -> None:
    (tmp_path / "own.py").write_text("own\n")
    (tmp_path / "requirements.txt").write_text("scipy\n")
    written = write_folder(tmp_path, base_image="workers:7", example=example)
    assert written == {"Dockerfile": True, "requirements.txt": False, ".dockerignore": True}
    assert (tmp_path / "requirements.txt").read_text() == "scipy\n"
    assert not (tmp_path / "digits.py").exists()


def test_a_dockerfile_is_not_overwritten(tmp_path: Path, example: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(UserError, match="Dockerfile exists"):
        write_folder(tmp_path, base_image="workers:7", example=example)
    assert [path.name for path in tmp_path.glob("*.py")] == []


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path, example: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file/models can't be written: Not a directory"):
        write_folder(tmp_path / "file" / "models", base_image="workers:7", example=example)


def test_init_says_how_the_image_is_built_pushed_and_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    init(tmp_path / "models", base_image="", example="deepfm")
    printed = capsys.readouterr().out
    image = "registry.example.com/team/models:1"
    assert f"docker build --tag {image} {tmp_path / 'models'}\n" in printed
    assert f"docker push {image}\n" in printed
    assert f"--image_name={image} --model_def={MODEL_ZOO}/deepfm.py " in printed


@pytest.mark.parametrize("name", ["models", "localhost:5000/models", "r.example.com/team/models:1.0", f"a/b@{DIGEST}"])
def test_names_of_base_images(tmp_path: Path, name: str) -> None:
    init(tmp_path, base_image=name, example="mnist")
    assert f"ARG BASE={name}\n" in (tmp_path / "Dockerfile").read_text()


@pytest.mark.parametrize("name", ["Models", "-models", "a b", "models:", "a//b", "a/b@sha256:12"])
def test_names_that_are_no_images(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="is not the name of an image"):
        init(tmp_path, base_image=name, example="mnist")
    assert list(tmp_path.iterdir()) == []
