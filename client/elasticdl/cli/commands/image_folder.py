"""``elasticdl zoo init``: the folder from which a user's own image is built, with a Dockerfile and model files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.shared.errors import InvariantError, UserError, file_errors
from elasticdl.zoo import MODELS, shipped_model_zoo

MODEL_ZOO = "/model_zoo"
"""Where the model files are inside the image."""
IMAGE = "registry.example.com/team/models:1"
DOCKERFILE, REQUIREMENTS, IGNORED = "Dockerfile", "requirements.txt", ".dockerignore"

_DOCKERFILE = """\
# The image of workers with your own model files, and with the packages that they import. To build it:
#
#   docker build --tag {image} .
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

_PART = r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:[a-zA-Z0-9.-]+(?::[0-9]+)?/)?{_PART}(?:/{_PART})*(?::[a-zA-Z0-9_][a-zA-Z0-9._-]*)?(?:@sha256:[0-9a-f]{{64}})?"
)
"""Registry, path, tag and digest, as the OCI distribution specification defines them."""


def init(folder: Path, *, base_image: str, example: str) -> None:
    """Write a folder from which an image can be built, and print what was written.

    Args:
        base_image: image to derive from; empty: ``elasticdl-worker`` of this version.
        example: data set of the zoo whose model is copied.
    """
    if example not in MODELS:
        raise UserError(f"--example={example}: choose {', '.join(MODELS)}", usage=True)
    zoo = shipped_model_zoo()
    if zoo is None:
        raise InvariantError("the package has no model zoo")
    base_image = base_image or f"elasticdl-worker:{version('elasticdl')}"
    if not _REFERENCE.fullmatch(base_image):
        raise UserError(
            f"--base_image={base_image!r} is not the name of an image",
            hint=f"Write it as {IMAGE}, in lower case.",
            usage=True,
        )
    written = write_folder(folder, base_image=base_image, example=zoo / f"{MODELS[example]}.py")
    console = plain_console()
    for name, is_new in written.items():
        console.print(f"{folder / name}" if is_new else f"{folder / name} exists and is kept.")
    console.print(f"The image will be derived from {base_image}.")
    console.print(f"Build it with: docker build --tag {IMAGE} {folder}")
    console.print(f"Push it with: docker push {IMAGE}")
    model = min(path.name for path in folder.glob("*.py"))
    console.print(
        f"Then train with: elasticdl train --platform=kubernetes --image_name={IMAGE} "
        f"--model_def={MODEL_ZOO}/{model} --training_data=s3://BUCKET/DATA --output=s3://BUCKET/MODEL"
    )


def write_folder(folder: Path, *, base_image: str, example: Path) -> Mapping[str, bool]:
    """Write the files of an image into a folder, which may hold model files already.

    Args:
        example: model file that is copied if the folder has no Python file.

    Returns:
        Name of each file -> whether it was written; a file that exists is kept.

    Raises:
        UserError: the folder has a Dockerfile, or can't be written.
    """
    if (folder / DOCKERFILE).exists():
        raise UserError(
            f"{folder / DOCKERFILE} exists",
            hint=f"Build an image from it: docker build --tag NAME {folder}. To write it again, delete it.",
        )
    contents = {
        DOCKERFILE: _DOCKERFILE.format(base_image=base_image, image=IMAGE, model_zoo=MODEL_ZOO),
        REQUIREMENTS: _REQUIREMENTS,
        IGNORED: _IGNORED,
    }
    written = {}
    with file_errors(f"{folder} can't be written", hint="Choose another folder."):
        folder.mkdir(parents=True, exist_ok=True)
        if not any(folder.glob("*.py")):
            shutil.copyfile(example, folder / example.name)
            written[example.name] = True
        for name, content in contents.items():
            written[name] = not (folder / name).exists()
            if written[name]:
                (folder / name).write_text(content)
    return written
