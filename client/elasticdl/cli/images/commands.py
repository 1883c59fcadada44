"""``elasticdl zoo init``, ``build`` and ``push``: run the tool that builds images, and say what comes next."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.images.folder import MODEL_ZOO, check_folder, model_files, write_folder
from elasticdl.cli.images.tools import check_name, tool_with, usable_tools
from elasticdl.shared.errors import InvariantError, UserError
from elasticdl.zoo import MODELS, shipped_model_zoo

CHECK_LIMIT_S = 60
"""How long a tool may take to say whether it works. A daemon that hangs must not stop the command."""


def init(folder: Path, *, base_image: str, example: str) -> None:
    """Write a folder from which ``build`` makes an image, and print what was written.

    Args:
        folder: where; may hold model files already.
        base_image: image to derive from; empty: ``elasticdl-worker`` of this version.
        example: data set of the zoo whose model is copied.

    Raises:
        UserError: no such example, or a folder that can't be used.
    """
    if example not in MODELS:
        raise UserError(f"--example={example}: choose {', '.join(MODELS)}", usage=True)
    zoo = shipped_model_zoo()
    if zoo is None:
        raise InvariantError("the package has no model zoo")
    base_image = base_image or f"elasticdl-worker:{version('elasticdl')}"
    check_name(base_image)
    written = write_folder(folder, base_image=base_image, example=zoo / f"{MODELS[example]}.py")
    console = plain_console()
    for name, is_new in written.items():
        console.print(f"{folder / name}" if is_new else f"{folder / name} exists and is kept.")
    console.print(f"The image will be derived from {base_image}.")
    console.print(f"Build it with: elasticdl zoo build {folder} --image=registry.example.com/team/models:1")


def build(folder: Path, *, image: str, tool: str, more: Sequence[str]) -> None:
    """Build an image, with the output of the tool on the terminal.

    Args:
        folder: has the Dockerfile.
        image: name of the image.
        tool: name of the tool; empty: the first one that works.
        more: flags for the tool itself.

    Raises:
        UserError: no tool works, there is no Dockerfile, or the build failed.
    """
    check_name(image)
    check_folder(folder)
    chosen = usable_tools(ask, tool)[0]
    _run(
        chosen.build_command(str(folder), image, more),
        f"{chosen.name} could not build {image}",
        f"The output above says why. If the base image is missing, build or pull it, or change BASE in "
        f"{folder / 'Dockerfile'}.",
    )
    console = plain_console()
    console.print(f"Built {image} with {chosen.name}.")
    console.print(f"Push it with: elasticdl zoo push {image}")
    for name in model_files(folder)[:1]:
        console.print(
            f"Then train with: elasticdl train --platform=kubernetes --image_name={image} "
            f"--model_def={MODEL_ZOO}/{name} --training_data=s3://BUCKET/DATA --output=s3://BUCKET/MODEL"
        )


def push(image: str, *, tool: str) -> None:
    """Push an image to the registry in its name, with the output of the tool on the terminal.

    Args:
        image: name of the image.
        tool: name of the tool; empty: the first one that has the image.

    Raises:
        UserError: no tool works or has the image, or the registry refused it.
    """
    check_name(image, to_push=True)
    chosen = tool_with(image, ask, tool)
    _run(
        chosen.push_command(image),
        f"{chosen.name} could not push {image}",
        f"The output above says why. If the registry asks for a login: {chosen.name} login {image.split('/')[0]}",
    )
    plain_console().print(f"Pushed {image} with {chosen.name}.")


def ask(command: Sequence[str]) -> str | None:
    """Run a command without showing its output.

    Returns:
        Empty if it succeeded, else its error in one line; None if there is no such program.
    """
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHECK_LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"no answer within {CHECK_LIMIT_S} s"
    except OSError as error:
        return error.strerror or "it can't be started"
    if done.returncode == 0:
        return ""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"{shlex.join(command)} failed with exit code {done.returncode}"


def _run(command: Sequence[str], problem: str, hint: str) -> None:
    """Run a command with its output on the terminal.

    Raises:
        UserError: it failed.
    """
    plain_console().print(shlex.join(command))
    code = subprocess.run(command, check=False).returncode
    if code:
        raise UserError(f"{problem} (exit code {code})", hint=hint)
