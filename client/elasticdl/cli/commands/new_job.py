"""A new job, from its flags to its end. Imported while TensorFlow is imported, since it takes half a second."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli import exit_codes
from elasticdl.cli.background import Accept
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.local.processes.fork_server import ForkServers
from elasticdl.cli.submission import trained_model
from elasticdl.cli.submission.plan_text import print_plan
from elasticdl.cli.submission.submit import Submission, prepare
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.kind_options import CommandFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import JobSubmitted
from elasticdl.shared.names import JobId, Service
from elasticdl.shared.storage import display

if TYPE_CHECKING:
    from elasticdl.cli.local.observer import Watch
    from elasticdl.cli.script.early_data import EarlyData


def start(
    flags: CommandFlags,
    root: Path,
    forks: ForkServers,
    started_s: float,
    accept: Accept | None,
    job: JobId | None = None,
    watch: Watch | None = None,
    early: EarlyData | None = None,
) -> int:
    """Plan a job and run it; with ``--dry_run`` print the plan and try the model.

    Args:
        flags: with a seed, if the job trains.
        job: id of a job that trains, whose folder has its model and data; None: a new one.
        watch: see ``RunOptions``.
        early: the first records of the data of the flags, which is still written; None: the data is complete.

    Raises:
        KeyboardInterrupt: the user interrupted it before it started. It has left nothing behind.
    """
    console = JobConsole()
    if not isinstance(flags, TrainFlags):
        submission = trained_model.prepare(flags, root, console.print_line, forks=forks)
        return _run(submission, root, flags, forks, started_s, accept)
    given = replace(flags, **early.first) if early else flags
    submission = prepare(given, root, console.print_line, job, forks=forks)
    if flags.dry_run:
        return _dry_run(submission, forks, console)
    complete = partial(_complete, submission, flags, early) if early else None
    return _run(submission, root, flags, forks, started_s, accept, watch, complete)


def _complete(submission: Submission, flags: TrainFlags, early: EarlyData, spec: JobSpec) -> JobSpec:
    """A job whose model was checked with the first records, with all of them once they are written."""
    from elasticdl.cli.script.early_data import scan_saved

    early.wait()
    if spec.model.adapted:
        raise InvariantError("the layers of a script's model were adapted to the first records of its data")
    whole = replace(submission, spec=spec).with_data(flags, scan_saved)
    whole.save_indices(whole.spec.storage)
    shutil.rmtree(Path(early.first["training_data"]).parent, ignore_errors=True)
    return whole.spec


def _dry_run(submission: Submission, forks: ForkServers, console: JobConsole) -> int:
    from elasticdl.cli.local.running import try_model

    print_plan(submission, console)
    check = try_model(submission, forks, console.print_line)
    matched = (check.initial.note,) if check.initial and check.initial.note else ()
    for line in (*check.notes, *matched, "The model was built and has computed the gradients of one batch."):
        console.print_line(line)
    return exit_codes.SUCCESS


def _run(
    submission: Submission,
    root: Path,
    flags: CommandFlags,
    forks: ForkServers,
    started_s: float,
    accept: Accept | None,
    watch: Watch | None = None,
    complete: Callable[[JobSpec], JobSpec] | None = None,
) -> int:
    run = RunDirectory(root, submission.spec.job)
    run.create()
    with run.lock():
        try:
            submission = submission.with_passed_model(run)
            spec, record = submission.spec, job_record(submission, flags)
            run.write(record)
            forks.begin(run.logs, [Service.WORKER])
            # Imported here: it takes a third of a second, and wrong input is reported before.
            from elasticdl.cli.local.running import RunOptions, run_job

            submission.save_indices(spec.storage)
            if complete is None:
                submission.share_indices()
        except BaseException:
            run.remove()  # The job did not start, so leave nothing behind.
            raise
        options = RunOptions(
            started_s=started_s,
            report=flags.report,
            debug=flags.debug,
            checks_model=True,
            forks=forks,
            accept=accept,
            watch=watch,
            complete=complete,
        )
        return run_job(run, record, spec, (JobSubmitted(spec=spec),), options)


def job_record(submission: Submission, flags: CommandFlags) -> JobRecord:
    """The first content of ``job.json``."""
    spec = submission.spec
    return JobRecord(
        job=spec.job,
        created_s=spec.created_s,
        state=JobState.STARTING.value,
        model=f"{spec.model.path}:{spec.model.symbol}",
        model_files=submission.model_files,
        working_directory=os.getcwd(),
        training_data=flags.training_data,
        validation_data=flags.prediction_data if isinstance(flags, PredictFlags) else flags.validation_data,
        custom_data_reader=spec.data.reader.function if spec.data.reader else "",
        output=display(spec.output),
        storage=spec.storage,
        nats_url=flags.nats_url,
        own_nats=not flags.nats_url,
        launcher_pid=os.getpid(),
        secret_envs=submission.secret_envs,
    )
