"""``elasticdl trainingjob convert``."""

from __future__ import annotations

from pathlib import Path

from elasticdl.cli.kubernetes.former_training_job import converted
from elasticdl.cli.kubernetes.new_job.creation import objects_text
from elasticdl.shared.errors import UserError, file_errors


def converted_text(file: Path) -> str:
    """The TrainingJobs of a file as YAML documents, each below what a reader has to know of it.

    Raises:
        UserError: the file can't be read, or has an object that can't be converted.
    """
    import yaml  # Comes with the package kubernetes.

    with file_errors(f"{file} can't be read", usage=True):
        content = file.read_text()
    try:
        objects = [each for each in yaml.safe_load_all(content) if each is not None]
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}", usage=True) from error
    if not objects or not all(isinstance(each, dict) for each in objects):
        raise UserError(f"{file} has no objects of Kubernetes", usage=True)
    texts = []
    for manifest, notes in map(converted, objects):
        texts.append("".join(f"# {note}\n" for note in notes) + objects_text([manifest]))
    return "---\n".join(texts)
