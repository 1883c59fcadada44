"""The folder from which a user's own image is built: a Dockerfile, requirements, and model files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from elasticdl.shared.errors import UserError

MODEL_ZOO = "/model_zoo"
"""Where the model files are inside the image."""
DOCKERFILE, REQUIREMENTS, IGNORED = "Dockerfile", "requirements.txt", ".dockerignore"

_DOCKERFILE = """\
# The image of workers with your own model files, and with the packages that they import. To build it:
#
#   elasticdl zoo build . --image=registry.example.com/team/models:1
#
# BASE is the image elasticdl-worker, of the same version as the elasticdl that submits the jobs.
ARG BASE={base_image}
FROM ${{BASE}}
USER 0:0

# The versions of the packages in BASE stay as they are; a requirement that contradicts them ends the build. BASE has no
# pip, so a temporary environment provides it.
COPY requirements.txt {model_zoo}/
RUN python3 -m venv /tmp/tools \\
    && /tmp/tools/bin/pip --python /opt/elasticdl/bin/python list --format=freeze > /tmp/constraints.txt \\
    && /tmp/tools/bin/pip --python /opt/elasticdl/bin/python install --no-cache-dir \\
        --constraint /tmp/constraints.txt --requirement {model_zoo}/requirements.txt \\
    && rm -r /tmp/tools /tmp/constraints.txt

# A change of the model files builds only what follows.
COPY . {model_zoo}/
RUN chmod -R a+rX {model_zoo}

USER 65532:65532
"""
_REQUIREMENTS = """\
# The packages that your model files import, one per line, such as: scipy
# TensorFlow, Keras and NumPy are in the base image.
"""
_IGNORED = """\
.git
.venv
**/__pycache__
"""


def write_folder(folder: Path, *, base_image: str, example: Path) -> Mapping[str, bool]:
    """Write the files of an image into a folder, which may hold model files already.

    Args:
        folder: created if it does not exist.
        base_image: the image to derive from.
        example: model file that is copied if the folder has no Python file.

    Returns:
        Name of each file -> whether it was written; a file that exists is kept.

    Raises:
        UserError: the folder has a Dockerfile, or can't be written.
    """
    if (folder / DOCKERFILE).exists():
        raise UserError(
            f"{folder / DOCKERFILE} exists",
            hint=f"Build an image from it: elasticdl zoo build {folder} --image=NAME. To write it again, delete it.",
        )
    contents = {
        DOCKERFILE: _DOCKERFILE.format(base_image=base_image, model_zoo=MODEL_ZOO),
        REQUIREMENTS: _REQUIREMENTS,
        IGNORED: _IGNORED,
    }
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("*.py")):
            shutil.copyfile(example, folder / example.name)
            written[example.name] = True
        for name, content in contents.items():
            written[name] = not (folder / name).exists()
            if written[name]:
                (folder / name).write_text(content)
    except OSError as error:
        raise UserError(f"{folder} can't be written: {error.strerror}", hint="Choose another folder.") from error
    return written


def check_folder(folder: Path) -> None:
    """Check that an image can be built from a folder.

    Raises:
        UserError: there is no such folder, or no Dockerfile in it.
    """
    if not folder.is_dir():
        raise UserError(f"There is no folder {folder}", hint=f"Create it with: elasticdl zoo init {folder}", usage=True)
    if not (folder / DOCKERFILE).is_file():
        raise UserError(f"{folder} has no Dockerfile", hint=f"Write one with: elasticdl zoo init {folder}")


def model_files(folder: Path) -> list[str]:
    """The names of the Python files in a folder, sorted."""
    return sorted(path.name for path in folder.glob("*.py"))
