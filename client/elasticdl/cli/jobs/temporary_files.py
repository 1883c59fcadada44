"""Temporary files of a job's processes are in a folder of their own, because killed processes can't delete them.

TensorFlow alone leaves a file for each function of a model that it converts.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from elasticdl.shared.names import JobId


def make_temporary(job: JobId) -> str:
    """Create the folder for the temporary files of a run; empty if that is not possible."""
    folder = Path(tempfile.gettempdir()) / _temporary_name(job)
    remove_temporary(job, str(folder))
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return ""  # The processes use the usual folder.
    return str(folder)


def remove_temporary(job: JobId, folder: str) -> None:
    """Delete a folder that ``make_temporary`` created, if it still exists."""
    if Path(folder).name == _temporary_name(job):  # Never delete a folder that was not created here.
        shutil.rmtree(folder, ignore_errors=True)


def _temporary_name(job: JobId) -> str:
    return f"elasticdl-{job}"
