"""A shipped model in object storage, to which its model file refers. Neither size nor folders of pods limit it."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import join, open_store

SHIPPED = "shipped.pickle"
"""The file beside the model file that holds all of it."""
BESIDE = "Shipped(__file__)"
"""How a model file loads what is beside it."""


def versions() -> tuple[str, str]:
    """What both sides of a pickle need to have alike: the versions of Python and Keras, without their last number."""
    keras = version("keras").split(".")
    return f"{sys.version_info.major}.{sys.version_info.minor}", ".".join(keras[:2])


def refer(model_file: Path, folder: str) -> None:
    """Move what is beside a model file to a folder of object storage, and let the model file refer to it.

    The digest in the model file says which content it means, so that nothing else is unpickled.

    Args:
        folder: URI.
    """
    file = model_file.with_name(SHIPPED)
    uri = join(folder, SHIPPED)
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            digest.update(block)
    open_store(uri).write(uri, file)
    text = model_file.read_text()
    source = f"{BESIDE.removesuffix(')')}, {uri!r}, {digest.hexdigest()!r}, {versions()!r})"
    model_file.write_text(text.replace(BESIDE, source))
    file.unlink()


def content(model_file: str, uri: str, digest: str, made_with: tuple[str, str]) -> bytes:
    """What a model file refers to.

    Raises:
        UserError: it has changed, or was made by other versions of Python or Keras, which can't read it.
    """
    if made_with != (mine := versions()):
        raise UserError(
            f"the script ran with Python {made_with[0]} and Keras {made_with[1]}, and the image of the workers has "
            f"Python {mine[0]} and Keras {mine[1]}, which can't read its model",
            hint="Give an image with the versions of your script: --image_name.",
        )
    found = open_store(uri).read(uri)
    if hashlib.sha256(found).hexdigest() != digest:
        raise UserError(f"{uri} is not what {Path(model_file).name} was made with", hint="Start the job again.")
    return found
