"""A model in object storage: its model file refers to it, and unpickles nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import join, to_uri
from elasticdl.shipping import references
from elasticdl.shipping.references import BESIDE, SHIPPED, content, refer


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    file = tmp_path / "here" / "train.py"
    file.parent.mkdir()
    file.write_text(f"_SHIPPED = {BESIDE}\n")
    file.with_name(SHIPPED).write_bytes(b"pickled")
    return file


def loaded(model_file: Path) -> bytes:
    """What the model file gets, run as a worker does."""
    module = {"__file__": str(model_file), "Shipped": content}
    exec(model_file.read_text(), module)
    found: bytes = module["_SHIPPED"]  # type: ignore[assignment]
    return found


def test_a_model_file_loads_what_was_moved_to_the_storage(model_file: Path, tmp_path: Path) -> None:
    refer(model_file, to_uri(tmp_path / "storage"))
    assert not model_file.with_name(SHIPPED).exists()
    assert loaded(model_file) == b"pickled"


def test_another_content_is_not_loaded(model_file: Path, tmp_path: Path) -> None:
    refer(model_file, to_uri(tmp_path / "storage"))
    (tmp_path / "storage" / SHIPPED).write_bytes(b"another")
    with pytest.raises(UserError, match=r"is not what train\.py was made with"):
        loaded(model_file)


def test_other_versions_are_named(model_file: Path, tmp_path: Path) -> None:
    uri = join(to_uri(tmp_path), SHIPPED)
    python, keras = references.versions()
    with pytest.raises(
        UserError, match=rf"Python 2.7 and Keras {keras}, and the image of the workers has Python {python}"
    ):
        content(str(model_file), uri, "", ("2.7", keras))
