"""Tries a job's model in processes of its own before any service starts; see ``elasticdl.worker.model_check``."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli.local.processes.children import Starter
from elasticdl.cli.local.processes.fork_server import MODEL_CHECK
from elasticdl.cli.submission.submit import Submission
from elasticdl.shared.errors import UserError
from elasticdl.shared.messages.codec import encode_spec
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process import model_check
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.shared.storage import to_uri

COMMAND = (sys.executable, "-m", MODEL_CHECK)
PROCESSES = 2
"""The second one makes the model as well, to be compared with the first's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRuntime:
    """What a check runs on.

    Attributes:
        starter: starts its processes.
        environment: (URL of the NATS server, pod, service) -> the environment of a process.
        logs: folder for the log and the output of each process.
    """

    starter: Starter
    environment: Callable[[str, PodName, Service], Mapping[str, str]]
    logs: Path


def check_model(submission: Submission, runtime: CheckRuntime) -> ModelCheck | None:
    """Make the model, compute the gradients of one batch, and compare the models of two processes.

    Args:
        submission: the job.
        runtime: what the check runs on.

    Returns:
        What was found; None if the check itself did not finish, because it crashed or storage is away. The job then
        starts without it: its own processes report what is wrong, with the records that they worked on.

    Raises:
        UserError: the model can't be trained, with the reason.
    """
    with tempfile.TemporaryDirectory(prefix="elasticdl-check-") as name:
        folder = Path(name)
        storage = to_uri(folder / "storage")
        submission.save_indices(storage)
        spec = replace(submission.spec, storage=storage)
        (folder / model_check.SPEC_FILE).write_bytes(encode_spec(spec))
        with _processes(folder, runtime) as pids:
            os.waitpid(pids[0], 0)
        result = ModelCheck.read(folder, 0)
    if result is not None and result.error:
        raise UserError(result.error)
    return result


@contextmanager
def _processes(folder: Path, runtime: CheckRuntime) -> Iterator[list[int]]:
    """Start the processes of a check; what is left of them at the end is killed."""
    pids = []
    try:
        for number in range(PROCESSES):
            pod = PodName(f"model-check-{number}")
            environment = {
                **runtime.environment("", pod, Service.WORKER),
                model_check.FOLDER_VARIABLE: str(folder),
                model_check.NUMBER_VARIABLE: str(number),
            }
            log, output = runtime.logs / f"{pod}.log", runtime.logs / f"{pod}.out"
            pids.append(runtime.starter.start(COMMAND, environment=environment, log=log, output=output))
        yield pids
    finally:
        for pid in pids:
            _end(pid)


def _end(pid: int) -> None:
    try:
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except ChildProcessError:  # It was reaped already.
        return
