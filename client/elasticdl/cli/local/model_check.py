"""Tries a job's model in processes of its own before any service starts, or exports it after they have ended.

See ``elasticdl.worker.model_check`` and ``elasticdl.worker.model_export``.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli.local.processes.children import Starter
from elasticdl.cli.local.processes.fork_server import MODEL_CHECK
from elasticdl.cli.local.processes.logs import tail
from elasticdl.cli.submission.submit import Submission
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import encode_spec
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process import model_check
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.shared.storage import to_uri

CHECK = (sys.executable, "-m", MODEL_CHECK)
EXPORT = (sys.executable, "-m", "elasticdl.worker.model_export")
CHECKS = ("model-check-0", "model-check-1")
"""Names of the processes of a check. The second one makes the model as well, to be compared with the first's."""
_LOG_LINES = 20


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
        with _processes(CHECK, CHECKS, folder, runtime) as pids:
            os.waitpid(pids[0], 0)
        result = ModelCheck.read(folder, 0)
    if result is not None and result.error:
        raise UserError(result.error)
    return result


def export_model(spec: JobSpec, folder: Path, runtime: CheckRuntime) -> ModelCheck:
    """Write a version of a job's model to its output.

    Args:
        spec: the job.
        folder: holds the version, in the file ``model_check.MODEL_FILE``.
        runtime: what the process runs on.

    Returns:
        What the user should know about the files.

    Raises:
        UserError: the model can't be exported, with the reason.
        PermanentError: the process did not finish.
    """
    (folder / model_check.SPEC_FILE).write_bytes(encode_spec(spec))
    with _processes(EXPORT, ("export",), folder, runtime) as pids:
        os.waitpid(pids[0], 0)
    result = ModelCheck.read(folder, 0)
    if result is None:
        log = runtime.logs / "export.log"
        raise PermanentError(f"the export did not finish. The end of {log}:\n{tail(log, _LOG_LINES)}")
    if result.error:
        raise UserError(result.error)
    return result


@contextmanager
def _processes(
    command: Sequence[str], names: Sequence[str], folder: Path, runtime: CheckRuntime
) -> Iterator[list[int]]:
    """Start a process under each name; what is left of them at the end is killed."""
    pids = []
    try:
        for number, pod in enumerate(map(PodName, names)):
            environment = {
                **runtime.environment("", pod, Service.WORKER),
                model_check.FOLDER_VARIABLE: str(folder),
                model_check.NUMBER_VARIABLE: str(number),
            }
            log, output = runtime.logs / f"{pod}.log", runtime.logs / f"{pod}.out"
            pids.append(runtime.starter.start(command, environment=environment, log=log, output=output))
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
