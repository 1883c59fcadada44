"""The model file and the modules beside it, which travel with a job in its ConfigMap; a passed model, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from elasticdl.cli.submission.submit import find_model
from elasticdl.shared.errors import UserError
from elasticdl.shared.job import model_file
from elasticdl.shared.job.model_digest import file_digests, imported_files
from elasticdl.shared.job.model_file import KERAS_FILE, is_passed_model
from elasticdl.shared.kubernetes.names import MODEL_FOLDER

BYTES_MAX = 900_000
"""A ConfigMap may have 1 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """A model on its way into pods.

    Attributes:
        name: the first part of the job's id, from the name of the file.
        reader: function in the model file that reads the data; empty: the data is in files, or that is not known here.
    """

    model_def: str
    name: str
    contents: Mapping[str, bytes]
    reader: str = ""

    @property
    def keys(self) -> dict[str, str]:
        """Key in the ConfigMap -> file name. A key has no slashes."""
        return {f"model.{number}.{PurePosixPath(name).name}": name for number, name in enumerate(self.contents)}


def collect(model_def: str, model_zoo: str, custom_data_reader: str = "") -> ModelFiles:
    """Find the model file, check its syntax, and read it.

    Args:
        model_def: the flag's value. An absolute path that does not exist here is one inside the workers' image.

    Raises:
        UserError: there is no such file, it is not valid, or the files are too large.
    """
    before = model_def.rpartition(":")[0]
    path = Path(before if before.endswith(".py") else model_def)
    if path.is_absolute() and not path.exists():
        return ModelFiles(model_def=model_def, name=path.stem, contents={}, reader=custom_data_reader)
    file = find_model(model_def, model_zoo)
    model_file.check_syntax(file)
    reader = model_file.find_reader(file, custom_data_reader)
    folder = file.path.parent
    contents = {name: (folder / name).read_bytes() for name in file_digests(file.path)}
    if is_passed_model(file.path):
        here = Path.cwd()
        contents |= {name: (here / name).read_bytes() for name in imported_files(file.path, here)}
        contents[KERAS_FILE] = (folder / KERAS_FILE).read_bytes()
    size = sum(map(len, contents.values()))
    if size > BYTES_MAX and is_passed_model(file.path):
        raise UserError(
            f"the model has {size:,} bytes with its weights and modules; a job on Kubernetes takes {BYTES_MAX:,} of a "
            "model that is passed as an object",
            hint="Write a model file that makes it, and give its path. If the weights matter, save the model as a "
            ".keras file in object storage, and give its address as initial_model.",
        )
    if size > BYTES_MAX:
        largest = max(contents, key=lambda name: len(contents[name]))
        raise UserError(
            f"{file.path} and the modules beside it that it imports have {size:,} bytes; a job takes {BYTES_MAX:,}",
            hint=f"The largest is {folder / largest}. Put the modules into the workers' image (--image_name).",
        )
    inside = f"{MODEL_FOLDER}/{file.path.name}:{file.symbol}"
    return ModelFiles(model_def=inside, name=file.path.stem, contents=contents, reader=reader)
