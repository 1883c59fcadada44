"""The folder of a job's temporary files: its processes are killed, so they can't be left to clean up after themselves.

TensorFlow alone leaves a file for each function of a model that it has converted.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from elasticdl.shared.names import JobId


def make_temporary(job: JobId) -> str:
    """A new folder for a run of a job, below the usual one; empty where it can't be made.

    Args:
        job: whose; no other run of it is alive.
    """
    folder = Path(tempfile.gettempdir()) / _name(job)
    remove_temporary(job, str(folder))
    try:
        folder.mkdir(mode=0o700)
    except OSError:
        return ""  # The usual one has to do.
    return str(folder)


def remove_temporary(job: JobId, folder: str) -> None:
    """Remove what ``make_temporary`` has made, with everything in it; nothing happens where it is gone.

    Args:
        job: whose; no process of it is alive.
        folder: as ``make_temporary`` returned it.
    """
    if Path(folder).name == _name(job):  # What else stands there did not come from here.
        shutil.rmtree(folder, ignore_errors=True)


def _name(job: JobId) -> str:
    return f"elasticdl-{job}"
