"""An image of a user's own, derived from the image of the workers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.conftest import NEEDS_IMAGES
from tests.cluster.service_images import derived_image, is_built, service_image

from elasticdl.cli.commands.image_folder import init

CODE = """
import importlib.util, os, humanize, elasticdl.worker.service
print(os.getuid(), importlib.util.find_spec("pip"), open("/model_zoo/deepfm.py").readable())
"""


@pytest.mark.timeout(600)  # on a busy machine; it takes half a minute else
def test_it_has_the_packages_and_the_model_files_of_the_folder(tmp_path: Path) -> None:
    if not is_built("worker"):
        pytest.skip(NEEDS_IMAGES)
    folder = tmp_path / "models"
    init(folder, base_image=service_image("worker"), example="deepfm")
    (folder / "requirements.txt").write_text("humanize\n")
    (folder / "deepfm.py").chmod(0o600)  # The user of the image reads it nevertheless.

    assert derived_image(folder, "localhost/own-models:test", CODE).split() == ["65532", "None", "True"]

    # The base image has one version of NumPy, and compiled code that needs it.
    (folder / "requirements.txt").write_text("numpy==1.26.4\n")
    with pytest.raises(RuntimeError, match="conflict"):
        derived_image(folder, "localhost/own-models:test", CODE)
