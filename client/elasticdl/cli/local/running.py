"""Runs a local job from its first event to its final report; ``train`` and ``resume`` share it."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import error_console
from elasticdl.cli.display.next_steps import find_next_step, next_step
from elasticdl.cli.display.report import print_end, print_summary
from elasticdl.cli.jobs.local_handle import LocalJobHandle
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory, make_temporary, remove_temporary
from elasticdl.cli.local.broker import Broker, EmbeddedBroker, ExternalBroker
from elasticdl.cli.local.local_job import LocalJob, Runtime
from elasticdl.cli.local.model_check import CheckRuntime, UnfinishedError, check_limit_s, check_model, check_pods
from elasticdl.cli.local.observer import JobObserver, Watch
from elasticdl.cli.local.processes.children import Starter
from elasticdl.cli.local.processes.environment import job_environment
from elasticdl.cli.local.processes.fork_server import ForkServers, fork_servers
from elasticdl.cli.local.processes.imports import service_command
from elasticdl.cli.local.processes.logs import NewLines, tail
from elasticdl.cli.local.processes.spawner import Spawner
from elasticdl.cli.submission.plan_text import start_lines
from elasticdl.cli.submission.submit import Submission
from elasticdl.master.core import State
from elasticdl.shared.bus import Bus, BusSettings
from elasticdl.shared.errors import ElasticDLError, file_errors
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Event, JobSubmitted
from elasticdl.shared.names import Service
from elasticdl.shared.process.clock import JobClock, SystemClock
from elasticdl.shared.process.model_check import ModelCheck
from elasticdl.shared.process.settings import variable
from elasticdl.shared.storage import to_uri
from elasticdl.shared.storage.atomic import replace_text
from elasticdl.views.report import Report, build

_DEBUG_LINES = 40
READ_INTERVAL_S = 0.25
"""Seconds between two looks at the log. The launcher only shows it; the master acts on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a job is run and reported.

    Attributes:
        checks_model: whether the model is checked before the job starts, as that of a new job is.
        forks: fork servers, that of the workers running; not given: new ones.
        accept: the job runs in the background, and this is called with its id, and the job on a command line, once it
            is accepted.
        complete: gives the job its data, which is written while the model is checked with the first records of it.
            None: the data is complete.
        watch: is called with the job, the heartbeats and the time, several times a second and at the end.
    """

    started_s: float
    report: Path | None = None
    debug: bool = False
    command: Callable[[Service], list[str]] = service_command
    checks_model: bool = False
    forks: ForkServers | None = None
    accept: Callable[[str, str], None] | None = None
    watch: Watch | None = None
    complete: Callable[[JobSpec], JobSpec] | None = None


def run_job(
    run: RunDirectory, record: JobRecord, spec: JobSpec, opening: tuple[Event, ...], options: RunOptions
) -> int:
    """Run a job until it has ended, then report.

    Args:
        opening: JobSubmitted or JobResumed, or both if the log is lost.

    Raises:
        KeyboardInterrupt: the user interrupted a new job before it started, or a resume.
    """
    is_new, job = isinstance(opening[-1], JobSubmitted), None
    clock = JobClock(SystemClock())
    observer = JobObserver(run, record, clock, options.accept, options.watch)
    try:
        remove_temporary(run.job, record.temporary)
        record = replace(record, temporary=make_temporary(run.job))
        observer.update_record(temporary=record.temporary)
        runtime = _runtime(run, record, spec, observer, options)
        if options.checks_model:
            spec = _checked(spec, run, runtime, Path(record.temporary or run.path), observer.print_line)
            if options.complete:
                spec = options.complete(spec)
            opening = (JobSubmitted(spec=spec),)
            for line in start_lines(spec, run):
                observer.print_line(line)
        job = LocalJob(run, runtime, observer, options.started_s, clock)
        state = asyncio.run(job.run(*opening))
        if is_new and not job.has_started:
            raise KeyboardInterrupt
        observer.show_printed()
        observer.save_history(state)
        if options.watch:
            options.watch(state, {}, clock.now())
    except (ElasticDLError, KeyboardInterrupt):
        if is_new and not (job and job.has_started):
            run.remove()  # The job did not start, so leave nothing behind.
        raise
    finally:
        observer.close()
        remove_temporary(run.job, record.temporary)
    report = build(state) if state.spec else None
    if report:
        if run.is_there():
            try:
                _write_report(report, run.report)
                step = next_step(run.arguments, state)
                observer.update_record(state=report["state"], message=report["message"], next_step=step)
            except ElasticDLError as error:  # A full disk must not prevent the summary from being printed.
                observer.print_line(f"The report was not saved: {error}")
        print_summary(report, observer.console)
    exit_code = _print_failure(run, state, options.debug)
    if report and options.report:
        _write_report(report, options.report)
    return exit_code


def try_model(submission: Submission, forks: ForkServers, show: Callable[[str], None], storage: str = "") -> ModelCheck:
    """Check the model of a job whose processes are not started here. Shows what the model prints.

    Args:
        forks: their server of the workers starts the processes of the check.
        show: shows the user a line while the check runs.
        storage: URI of a folder for what the check writes and the job needs; empty: the job does not start.

    Returns:
        What is worth knowing about the model.

    Raises:
        UnfinishedError: the check did not finish.
    """
    with tempfile.TemporaryDirectory(prefix="elasticdl-dry-run-") as name:
        run = RunDirectory(Path(name), submission.spec.job)
        run.create()
        spec = replace(submission.spec, storage=storage or to_uri(run.path / "storage"))
        envs = {**spec.envs, **submission.secret_envs}
        submission.save_indices(spec.storage)
        # TensorFlow leaves temporary files behind when its process is killed.
        environment = job_environment({**os.environ, "TMPDIR": name}, spec, run, "", envs)
        runtime = CheckRuntime(
            starter=forks,
            environment=environment,
            logs=run.logs,
            show=show,
            limit_s=check_limit_s(spec),
            logs_stay=False,
        )
        printed = NewLines(run.logs)
        forks.begin(run.logs, [Service.WORKER])
        forks.servers[Service.WORKER].wait()
        check = check_model(spec, _check_folder(run.path), runtime)
        pod, _ = check_pods(spec)
        for process, line in printed.take():
            if process == pod:
                show(line)
        return check


def _checked(spec: JobSpec, run: RunDirectory, runtime: Runtime, folder: Path, show: Callable[[str], None]) -> JobSpec:
    """Check the model of a new job. The processes of the check wait to become its first workers.

    Returns:
        The job with the fingerprint and the callbacks of its model; without them if the check did not finish.

    Raises:
        UnfinishedError: the check did not finish, and the job can't start without it.
    """
    forks = runtime.forks
    starter: Starter = forks or runtime.spawner
    keep = forks.keep if forks else None
    if forks:
        if not spec.ps_pods:
            forks.leave_out(Service.PS)
        forks.begin(run.logs)
        forks.servers[Service.WORKER].wait()
    check_runtime = CheckRuntime(
        starter=starter,
        environment=runtime.environment,
        logs=run.logs,
        show=show,
        keep=keep,
        limit_s=check_limit_s(spec),
    )
    try:
        check = check_model(spec, _check_folder(folder), check_runtime)
    except UnfinishedError:
        if spec.initial and not spec.initial.parts:
            raise  # The check reads the file that the job starts from.
        return spec
    return check.apply(spec)


def _check_folder(parent: Path) -> Path:
    folder = parent / "model-check"
    folder.mkdir()
    return folder


def _runtime(
    run: RunDirectory, record: JobRecord, spec: JobSpec, observer: JobObserver, options: RunOptions
) -> Runtime:
    envs = {**spec.envs, **record.secret_envs}
    forks = options.forks
    if forks is None and options.command is service_command:
        forks = fork_servers(processes=spec.processes, seed=spec.plan.seed, envs=envs)
        if not spec.ps_pods:
            forks.leave_out(Service.PS)
    spawner = forks.spawner if forks else Spawner()
    broker: Broker = EmbeddedBroker(spawner, run) if record.own_nats else ExternalBroker(record.nats_url)

    async def connect(url: str) -> Bus:
        from elasticdl.shared.bus import nats_bus

        observer.update_record(nats_url=url)
        return await nats_bus.connect(
            url,
            spec.job,
            BusSettings(lease_s=spec.limits.lease_s, run_directory=str(run.path), read_interval_s=READ_INTERVAL_S),
        )

    base = {**os.environ, "TMPDIR": record.temporary} if record.temporary else os.environ
    return Runtime(
        broker=broker,
        connect=connect,
        environment=job_environment(base, spec, run, base.get(variable("token")) or secrets.token_hex(16), envs),
        spawner=spawner,
        forks=forks,
        command=options.command,
    )


def _print_failure(run: RunDirectory, state: State, debug: bool) -> int:
    """Print why a job did not succeed and what to do; returns the exit code."""
    guilty = state.failure.guilty if state.failure else ""
    gone = "Start a new job with: elasticdl train. The progress of this job was in the removed folder."
    step = find_next_step(LocalJobHandle(run), state) if run.is_there() else gone
    exit_code = print_end(state, log=str(run.log(guilty)), next_step=step)
    if guilty and debug and exit_code == exit_codes.FAILURE:
        error_console().print(tail(run.log(guilty), _DEBUG_LINES), soft_wrap=True)
    return exit_code


def _write_report(report: Report, file: Path) -> None:
    """Write the report as JSON. Readers see the old file or the complete new one."""
    with file_errors(f"the report can't be written to {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(report, indent=2) + "\n")
