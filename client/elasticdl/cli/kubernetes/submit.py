"""The container ``submit``, which plans a job before its master starts; ``submit_container`` is its first process.

Every master of the job has such a container before it. The first one does what ``elasticdl train`` does on one machine
before it starts processes, and opens the run on the event log. Later ones find the run there, and end.

It runs the code of the model file, so it has no token for the API server. What needs one is done by the container
``prepare`` before it, which also ends the job after an error that this container has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli.jobs.former_run import FormerRun
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.shared.bus import Bus, BusSettings, nats_bus
from elasticdl.shared.errors import ElasticDLError, PermanentError, UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.spec import InitialModel, JobSpec
from elasticdl.shared.kubernetes.names import (
    ERROR_PREFIX,
    JOB_FOLDER,
    NAMESPACE_OBJECT,
    SUBMISSION_FILE,
    without_pod_folders,
)
from elasticdl.shared.kubernetes.pod_manifests import TERMINATION_MESSAGE, write_message
from elasticdl.shared.messages.events import Event, JobSubmitted
from elasticdl.shared.names import LAUNCHER, JobId, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher
from elasticdl.shared.process.exit_codes import EXIT_AWAY, exit_code
from elasticdl.shared.process.logs import hide_details
from elasticdl.shared.process.operating_system import end_on_sigterm
from elasticdl.shared.process.settings import ProcessSettings, from_environment, variable
from elasticdl.shared.storage import display, open_store, scheme_of

if TYPE_CHECKING:
    from elasticdl.cli.local.processes.fork_server import ForkServers
    from elasticdl.master.core import State

CONNECT_S = 30.0
"""Seconds to wait for NATS. After that the container ends, and the Job starts it again."""


class NatsRefusedError(UserError):
    """The NATS server refuses this client, or can't serve it."""


async def submit(file: SubmissionFile, nats_url: str, replicas: int = 1, begun: ForkServers | None = None) -> None:
    """Open the run of a job on its log, unless that is done; ``begun``: the server that checks the model."""
    with begun or _forks(file) as forks:
        await _submit(file, forks, nats_url, replicas)


async def _submit(file: SubmissionFile, forks: ForkServers, nats_url: str, replicas: int) -> None:
    from elasticdl.views import reading

    async with await connect(nats_url, file.job, replicas) as bus:
        try:
            opened = is_open((await reading.exact(bus)).state, file)
        except PermanentError:
            if file.resumption is None or not file.resumption.rebuild_bus:
                raise
            opened = False
        if opened:
            say("The job is on its event log.")
            return
        if file.resumption is not None:
            await _resume(bus, file, file.resumption)
        else:
            version = await _source_version(file, nats_url, replicas)
            spec = await asyncio.to_thread(plan, file, forks, version)
            await _open(bus, file, JobSubmitted(spec=spec))
        if not is_open((await reading.exact(bus)).state, file):
            raise UserError(
                f"another command has resumed job {file.job} meanwhile",
                hint=f"To follow it: elasticdl attach {file.job}",
            )


def is_open(state: State, file: SubmissionFile) -> bool:
    """Whether the event log has all that opens the run of a file: a resume without the former log submits first."""
    return state.run == file.run and (file.resumption is None or state.resumes > 0)


async def _source_version(file: SubmissionFile, nats_url: str, replicas: int) -> tuple[InitialModel, JobSpec] | None:
    """The version of another job's model that the job uses, and that job; None: it uses none."""
    if file.source is None:
        return None
    from elasticdl.cli.kubernetes.new_job.source_job import newest_version

    if next(open_store(file.source.storage).list(f"{file.source.storage}/"), None) is None:
        raise UserError(f"there is no job {file.source.job}: {display(file.source.storage)} holds nothing")
    async with await connect(nats_url, file.source.job, replicas) as bus:
        return await newest_version(bus, file.source)


def _forks(file: SubmissionFile) -> ForkServers:
    """A server that could check the model; it has not begun."""
    from elasticdl.cli.local.processes.fork_server import fork_servers
    from elasticdl.cli.submission.seed import seed_of

    return fork_servers(processes=file.flags.processes, seed=seed_of(file.flags), envs={})


def plan(file: SubmissionFile, forks: ForkServers, version: tuple[InitialModel, JobSpec] | None = None) -> JobSpec:
    """Check model, data and destinations, and plan the job; writes the indices of the data to the job's storage."""
    from elasticdl.cli.local.model_check import UnfinishedError
    from elasticdl.cli.local.running import try_model
    from elasticdl.cli.submission import trained_model
    from elasticdl.cli.submission.plan_text import start_lines
    from elasticdl.cli.submission.submit import prepare

    flags = file.flags
    if isinstance(flags, TrainFlags):
        submission = prepare(flags, None, say, file.job, version[0] if version else None, forks=forks)
    else:
        submission = trained_model.prepare(flags, None, say, file.job, version, forks=forks)
    # Pods mount the model under the same path; the folder that it links to has a name of its own in each pod.
    path = flags.model_def.rpartition(":")[0] or flags.model_def
    spec = replace(submission.spec, model=replace(submission.spec.model, path=path))
    # The check writes the weights of a file for the ps.
    place = spec.storage if spec.initial and spec.initial.file else ""
    try:
        check = try_model(replace(submission, spec=spec), forks, say, place)
        if (folder := check.tensorboard_log_dir) and not spec.tensorboard_log_dir and scheme_of(folder) == "file":
            raise UserError(
                f"{display(folder)}, the folder of the TensorBoard callback, would be a folder of a pod",
                hint="Give TensorBoard(log_dir='s3://BUCKET/PREFIX'), or --tensorboard_log_dir.",
            )
        spec = check.apply(spec)
    except (UnfinishedError, UserError) as error:
        if place:
            _remove_all(place)
        if place or isinstance(error, UserError):
            raise
        say(str(error))
    submission.save_indices(spec.storage)
    submission.share_indices()
    for line in start_lines(spec):
        say(line)
    return spec


def _remove_all(storage: str) -> None:
    """Remove what a job has written that is refused."""
    store = open_store(storage)
    with contextlib.suppress(ElasticDLError):  # The refusal is what matters.
        for found in list(store.list(f"{storage}/")):
            store.delete(found.uri)


async def _resume(bus: Bus, file: SubmissionFile, changes: ResumeChanges) -> None:
    """Check that the job can continue, and open its next run."""
    from elasticdl.cli.jobs.resumption import plan_next_run, purge_former_tasks
    from elasticdl.cli.submission.preflight import check_writable
    from elasticdl.cli.submission.source_check import check_data

    former = former_run(file)
    past = await plan_next_run(bus, open_store(former.storage), former, changes, file.run)
    if past.spec.output:
        await asyncio.to_thread(check_writable, f"the output {display(past.spec.output)}", past.spec.output)
    await asyncio.to_thread(check_data, past.spec, say)
    say(past.start_line)
    await purge_former_tasks(bus, past.state.run)
    await _open(bus, file, *past.opening)


def former_run(file: SubmissionFile) -> FormerRun:
    """What the objects of a job say about it."""
    from elasticdl.cli.submission.submit import storage_of

    return FormerRun(job=file.job, arguments=file.job, storage=storage_of(file.flags, None, file.job))


async def connect(nats_url: str, job: JobId, replicas: int = 1) -> nats_bus.NatsBus:
    """Connect to the NATS server of a job, from a pod. Raises ``NatsRefusedError``: the server refuses this client."""
    settings = BusSettings(connect_s=CONNECT_S, absence_is_final=False, replicas=replicas)
    try:
        return await nats_bus.connect(nats_url, job, settings)
    except UserError as error:
        raise NatsRefusedError(str(error)) from error


async def _open(bus: Bus, file: SubmissionFile, *opening: Event) -> None:
    """Append the first events of the run. Their incarnation is the id of the run, so a repetition is recognised."""
    envelopes = EnvelopeFactory(service=Service.LAUNCHER, name=LAUNCHER, clock=SystemClock(), incarnation=file.run)
    publisher = QueuedEventPublisher(bus.log, envelopes)
    for event in opening:
        await publisher.open(event)


def say(line: str) -> None:
    """Print a line that the client shows."""
    sys.stdout.write(f"{without_pod_folders(line)}\n")
    sys.stdout.flush()


def main(begun: ForkServers | None = None) -> int:
    """Entry point. Returns 0, or the exit code of the error, which is in the container's termination message."""
    hide_details()  # The client shows the log of this container.
    try:
        file, settings = read_job()
        asyncio.run(submit(file, settings.nats_url, settings.nats_replicas, begun))
    except Exception as error:  # The outermost frame: Python's own exit code looks like that of a job that has failed.
        report_error(error)
        # Whether a refused connection ends the job is decided by the next container ``prepare``.
        return EXIT_AWAY if isinstance(error, NatsRefusedError) else exit_code(error)
    return 0


def read_job() -> tuple[SubmissionFile, ProcessSettings]:
    """The job of this pod, and how its server is reached; SIGTERM ends this process from now on."""
    end_on_sigterm()  # A successor plans the job.
    file = SubmissionFile.from_json(Path(JOB_FOLDER, SUBMISSION_FILE).read_text())
    if not os.environ.get(variable("nats_url")):
        raise UserError(f"Secret {NAMESPACE_OBJECT} of the namespace has no {variable('nats_url')}")
    names = {variable("job"): file.job, variable("pod"): LAUNCHER}
    return file, from_environment(ProcessSettings, {**os.environ, **names})


def report_error(error: Exception, note: str = "", message_file: Path = Path(TERMINATION_MESSAGE)) -> None:
    """Write an error to the log of this container, and to its termination message."""
    text = str(error) if isinstance(error, ElasticDLError) else traceback.format_exc()
    text = without_pod_folders(f"{text}\n{note}".rstrip())
    sys.stderr.write(f"{ERROR_PREFIX}{text}\n")
    write_message(text, keeps_end=True, path=message_file)
