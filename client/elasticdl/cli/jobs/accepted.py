"""How a command that leaves a job running ends: for the user, and for the Python API, which starts such commands."""

from __future__ import annotations

import contextlib
import os

JOB_FILE_VARIABLE = "ELASTICDL_JOB_FILE"
"""Environment variable with a file for the id of a job that was accepted; set by the Python API."""

JOB_VARIABLE = "ELASTICDL_JOB"
"""Environment variable with the id of the job, whose folder has its model and data; set by the Python API."""


def leaving_lines(arguments: str, state: str = "continues") -> str:
    """What a user reads whose job continues without being shown."""
    return (
        f"The job {state}. To follow it: elasticdl attach {arguments}\n"
        f"To read the logs of its processes: elasticdl logs {arguments} --follow\n"
        f"To stop it: elasticdl stop {arguments}"
    )


def report_job(job: str) -> None:
    """Write the id of a job that was accepted to the file that the environment names, if it names one."""
    if file := os.environ.get(JOB_FILE_VARIABLE):
        with contextlib.suppress(OSError), open(file, "r+") as opened:  # It is gone with the process that reads it.
            opened.write(job)
