"""A Keras model that Python code has passed to ``elasticdl.api``: a model file and a ``.keras`` file in one folder.

The folder is a temporary one until the job has a folder of its own, into which both files are copied. So a resume finds
them, and they are deleted with the job. On Kubernetes they travel in the job's ConfigMap.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.submission.submit import Submission
from elasticdl.shared.errors import PermanentError, file_errors
from elasticdl.shared.job.model_file import PASSED_MODEL_FOLDER


def is_passed_model(file: Path) -> bool:
    """Whether a model file belongs to a model that was passed as an object."""
    return file.parent.name.startswith(PASSED_MODEL_FOLDER)


def with_passed_model(submission: Submission, run: RunDirectory) -> Submission:
    """The submission with its model in the job's folder, if it was passed as an object; any other one as it is."""
    file = Path(submission.spec.model.path)
    if not is_passed_model(file):
        return submission
    with file_errors(f"the model can't be copied to {run.model}", PermanentError):
        shutil.copytree(file.parent, run.model)
    model = replace(submission.spec.model, path=str(run.model / file.name))
    return replace(submission, spec=replace(submission.spec, model=model))
