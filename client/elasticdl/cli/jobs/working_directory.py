"""The working directory of a job: relative paths in a model file mean the same at a resume as at the start."""

from __future__ import annotations

import os

from elasticdl.cli.jobs.run_directory import JobRecord
from elasticdl.shared.errors import UserError


def enter(record: JobRecord) -> None:
    """Make the folder in which a job was started the working directory of this process and its children.

    Resolve relative paths of the command line first.
    """
    try:
        os.chdir(record.working_directory)
    except OSError as error:
        raise UserError(
            f"the working directory {record.working_directory} of job {record.job} can't be entered: {error.strerror}",
            hint="Relative paths in the model file start there. Restore the folder; if it has none, an empty "
            f"folder will do: mkdir -p {record.working_directory}",
        ) from error
