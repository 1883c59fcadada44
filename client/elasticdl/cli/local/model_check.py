"""Tries a job's model in processes of its own before any service starts, or exports it after they have ended.

Another process reads the data with the reader of the model file. See ``elasticdl.worker.model_check``,
``elasticdl.worker.model_export`` and ``elasticdl.worker.data_planning``.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from elasticdl.cli.local.processes.children import Starter
from elasticdl.cli.local.processes.fork_server import DATA_PLANNING, MODEL_CHECK
from elasticdl.cli.local.processes.imports import module_command
from elasticdl.cli.local.processes.logs import tail
from elasticdl.cli.submission.preflight import check_writable
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.codec import encode_spec
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodName, Service, pod_name
from elasticdl.shared.pods.causes import classify_exit, describe_exit
from elasticdl.shared.process import model_check
from elasticdl.shared.process.fork_server import WaitingProcess
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.shared.process.oom_watch import OomWatch
from elasticdl.shared.process.operating_system import kill_group
from elasticdl.shared.storage import display

CHECK = module_command(MODEL_CHECK)
PLANNING = module_command(DATA_PLANNING)
EXPORT = module_command("elasticdl.worker.model_export")
_LOG_LINES = 20
_MEMORY_HINT = (
    "Use smaller minibatches, or a machine with more memory. On Kubernetes, start the job with more memory for "
    "workers: --worker_resource_request=memory=QUANTITY."
)
_POLL_S = 0.01
_OWN_ENDS = (ExitCause.OWN_FAULT, ExitCause.REFUSED)
"""How a process ends that was not killed. Python's exit code for an unexpected exception is that of a refusal."""


class UnfinishedError(PermanentError):
    """The process of a check or an export ended without a result: it crashed, or storage is unreachable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRuntime:
    """What a check runs on.

    Attributes:
        environment: (URL of the NATS server, pod, service) -> the environment of a process.
        logs: folder for the log and the output of each process.
        keep: (log, process) takes a process that is to become the worker with this log; None: all of them end.
        slow_s: seconds until the user reads what the process is doing.
        logs_stay: whether the user can read the logs after a failure.
    """

    starter: Starter
    environment: Callable[[str, PodName, Service], Mapping[str, str]]
    logs: Path
    show: Callable[[str], None]
    keep: Callable[[Path, WaitingProcess], None] | None = None
    slow_s: float = 10.0
    limit_s: float = math.inf
    logs_stay: bool = True
    oom_watch: OomWatch = field(default_factory=OomWatch)


def check_model(spec: JobSpec, folder: Path, runtime: CheckRuntime) -> ModelCheck:
    """Build the model, compute the gradients of one batch, and compare the models of two processes.

    Args:
        folder: an empty folder.

    Raises:
        UnfinishedError: the check itself did not finish. A job may start nevertheless: its own processes report what is
            wrong, with the records that they worked on.
    """
    (folder / model_check.SPEC_FILE).write_bytes(encode_spec(spec))
    pods = check_pods(spec)
    if runtime.keep:
        for number in range(min(len(pods), spec.workers)):
            with contextlib.suppress(OSError):  # Without a pipe, the worker builds the model again.
                os.mkfifo(model_check.pipe_of(folder, number))
    with _processes(CHECK, pods, folder, runtime) as pids:
        second = _Second(folder=folder, pid=pids[pods[1]], log=runtime.logs / f"{pods[1]}.log", model=spec.model.path)
        result = _result("model check", folder, (pods[0], pids[pods[0]]), runtime, second)
        for line in result.unloadable:
            runtime.show(line)
        if (folder_uri := result.tensorboard_log_dir) and not spec.tensorboard_log_dir:
            check_writable(f"{display(folder_uri)}, the folder of the TensorBoard callback,", folder_uri)
        if runtime.keep:
            for number, pod in enumerate(pods):
                pipe = model_check.pipe_of(folder, number)
                checked = ModelCheck.read(folder, number)
                if pipe.exists() and checked and checked.fingerprint:
                    runtime.keep(runtime.logs / f"{pod}.log", WaitingProcess(pid=pids[pod], pipe=pipe))
                    del pids[pod]
    return result


def check_pods(spec: JobSpec) -> tuple[PodName, PodName]:
    """Names of the two processes of a check: those of the workers that they become."""
    return pod_name(Service.WORKER, 0), pod_name(Service.WORKER, 1) if spec.workers > 1 else PodName("model-check")


def plan_with_reader(folder: Path, runtime: CheckRuntime) -> None:
    """Plan data sets with the reader of the model file.

    Args:
        folder: holds the request, and then the data sets; see ``elasticdl.shared.data.custom.exchange``.

    Raises:
        UserError: the reader or a record is wrong.
        UnfinishedError: the process did not finish.
    """
    _run_alone(PLANNING, PodName("data-planning"), "reading of the data", folder, runtime)


def export_model(spec: JobSpec, folder: Path, runtime: CheckRuntime) -> ModelCheck:
    """Write a version of a job's model to its output.

    Args:
        folder: holds the version, in the file ``model_check.MODEL_FILE``.

    Returns:
        What the user should know about the files.

    Raises:
        UserError: the model can't be exported, with the reason.
        UnfinishedError: the process did not finish.
    """
    (folder / model_check.SPEC_FILE).write_bytes(encode_spec(spec))
    return _run_alone(EXPORT, PodName("export"), "export", folder, runtime)


def _run_alone(command: Sequence[str], pod: PodName, what: str, folder: Path, runtime: CheckRuntime) -> ModelCheck:
    with _processes(command, (pod,), folder, runtime) as pids:
        return _result(what, folder, (pod, pids[pod]), runtime)


@dataclass(slots=True, kw_only=True)
class _Second:
    """The second process of a model check, which the first one waits for; ``pid``: of the process; 0: it has ended."""

    folder: Path
    pid: int
    log: Path
    model: str

    def settle(self) -> None:
        """If the process has ended without a result, write one in its place: a crash of an export is its result."""
        if not self.pid or (code := _exit_code(self.pid)) is None:
            return
        self.pid = 0
        if ModelCheck.read(self.folder, 1) is None:
            crash = _crash_of_export(self.folder, 1, code, self.model)
            ModelCheck(error=crash and crash + _end_of_log(self.log, logs_stay=False)).write(self.folder, 1)


def _exit_code(pid: int) -> int | None:
    """The exit code of a process, or minus the number of its signal; None: it runs. It is reaped later."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _crash_of_export(folder: Path, number: int, code: int, model: str) -> str:
    """Why the model can't be exported, if a process crashed while it tried; empty if not, or if it was killed."""
    if not model_check.was_exporting(folder, number) or classify_exit(code) not in _OWN_ENDS:
        return ""
    return (
        f"{model}: the model can't be exported. A process that tried to write it ended with {describe_exit(code)}.\n"
        "  Change the layers that Keras or TensorFlow can't write, or train without --output."
    )


def _result(
    what: str, folder: Path, process: tuple[PodName, int], runtime: CheckRuntime, second: _Second | None = None
) -> ModelCheck:
    """Wait for the result of process 0, whose name and id are given; after ``slow_s`` tell the user what it does.

    Raises:
        UserError: the result is an error, there is none after ``limit_s``, memory ran out, or the process crashed while
            it tried to export the model. The conversion of initial weights may take any time.
        UnfinishedError: the process has ended without a result.
    """
    pod, pid = process
    log = runtime.logs / f"{pod}.log"
    started_s = time.monotonic()
    slow_s, limit_s = started_s + runtime.slow_s, started_s + runtime.limit_s
    while True:
        code = _exit_code(pid)
        if second:
            second.settle()
        if result := ModelCheck.read(folder, 0):
            if result.error:
                raise UserError(result.error)
            return result
        if code is not None:
            if second and (crash := _crash_of_export(folder, 0, code, second.model)):
                raise UserError(crash + _end_of_log(log, logs_stay=runtime.logs_stay))
            phase = model_check.read_phase(folder, 0)
            while_ = f" while {phase}" if phase else ""
            if runtime.oom_watch.has_killed(pod, code):
                raise UserError(
                    f"the {what} ran out of memory{while_}: the kernel killed its process.",
                    hint=_MEMORY_HINT,
                )
            raise UnfinishedError(
                f"the {what} did not finish: its process ended with {describe_exit(code)}{while_}."
                + _end_of_log(log, logs_stay=runtime.logs_stay)
            )
        if time.monotonic() > slow_s:
            slow_s, phase = math.inf, model_check.read_phase(folder, 0)
            now = f": its process is {phase}" if phase else ""
            place = f" Log: {log}" if runtime.logs_stay else ""
            runtime.show(f"The {what} has not finished after {runtime.slow_s:g} s{now}.{place}")
        if time.monotonic() > limit_s and model_check.is_converting(folder):
            limit_s = math.inf
            runtime.show("The model is checked. Converting the initial weights takes longer.")
        if time.monotonic() > limit_s:
            phase = model_check.read_phase(folder, 0)
            raise UserError(
                f"the {what} did not finish within {runtime.limit_s:g} s"
                + (f": its process was {phase}." if phase else ".")
                + _end_of_log(log, logs_stay=False)
            )
        time.sleep(_POLL_S)


def _end_of_log(log: Path, *, logs_stay: bool) -> str:
    end = tail(log, _LOG_LINES)
    place = f" {log}" if logs_stay else ""
    return f"\nThe end of its log{place}:\n{end}" if end else ""


def check_limit_s(spec: JobSpec) -> float:
    """Seconds that the model check may take: as long as a worker may take to get ready and to compute a batch."""
    return spec.limits.start_s + (spec.limits.batch_deadline_s or math.inf)


@contextmanager
def _processes(
    command: Sequence[str], pods: Sequence[PodName], folder: Path, runtime: CheckRuntime
) -> Iterator[dict[PodName, int]]:
    """Start a process under each name; gives their process ids. Those that are in the dict at the end are killed."""
    pids: dict[PodName, int] = {}
    try:
        for number, pod in enumerate(pods):
            environment = {
                **runtime.environment("", pod, Service.WORKER),
                model_check.FOLDER_VARIABLE: str(folder),
                model_check.NUMBER_VARIABLE: str(number),
            }
            log, output = runtime.logs / f"{pod}.log", runtime.logs / f"{pod}.out"
            runtime.oom_watch.started(pod)
            pids[pod] = runtime.starter.start(command, environment=environment, log=log, output=output)
        yield pids
    finally:
        for pid in pids.values():
            kill_group(pid)
            os.waitpid(pid, 0)
