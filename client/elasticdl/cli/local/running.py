"""Runs a job on this machine from its opening record to its closing report; ``train`` and ``resume`` both end here."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from elasticdl.cli import exit_codes
from elasticdl.cli.display import report as reports
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.live import open_view
from elasticdl.cli.display.next_steps import advice
from elasticdl.cli.display.resumability import next_step
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.cli.jobs.temporary import make_temporary, remove_temporary
from elasticdl.cli.local.broker import Broker, ForeignBroker, OwnBroker
from elasticdl.cli.local.environment import job_environment, threads_each
from elasticdl.cli.local.fork_server import ForkServers
from elasticdl.cli.local.job_observer import Watcher
from elasticdl.cli.local.local_job import Ending, LocalJob
from elasticdl.cli.local.logs import tail
from elasticdl.cli.local.pods import service_command
from elasticdl.cli.local.spawner import Spawner
from elasticdl.shared.bus import Bus, BusSettings
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Event, JobSubmitted
from elasticdl.shared.names import Service

_DEBUG_LINES = 40


def run_job(
    run: RunDirectory,
    record: JobRecord,
    spec: JobSpec,
    *opening: Event,
    started_s: float,
    report: Path | None,
    debug: bool,
    command: Callable[[Service], list[str]] = service_command,
) -> int:
    """Keep a job running until it is final, then report.

    Args:
        run: its folder, locked by the caller.
        record: what ``job.json`` says.
        spec: the job.
        opening: JobSubmitted or JobResumed, or one after the other where the log is lost.
        started_s: when the command was given, seconds since the epoch.
        report: where to write the report besides the run directory.
        debug: show the guilty process' log on failure.
        command: the command line of a service.

    Returns:
        The command's exit code.

    Raises:
        ElasticDLError: the job could not be started.
    """
    console = JobConsole()
    remove_temporary(run.job, record.temporary)
    record = replace(record, temporary=make_temporary(run.job))
    run.write(record)
    view = open_view(console)
    try:
        watcher = Watcher(run, record, view)
        ending = asyncio.run(_local_job(run, record, spec, watcher, command).run(*opening))
        watcher.show_printed()
        watcher.keep_history(ending.state)
    except ElasticDLError:
        if isinstance(opening[-1], JobSubmitted):
            run.remove()  # Nothing was begun: leave nothing behind.
        raise
    finally:
        view.close()
        remove_temporary(run.job, record.temporary)
    facts = reports.build(ending, run, started_s, time.time()) if ending.state.spec else None
    message = reports.message_of(ending)
    if facts:
        if run.is_there():
            try:
                reports.write(facts, run.report)
                watcher.note(state=facts["state"], message=message, advice=advice(run, ending.state))
            except ElasticDLError as error:  # The disk is full: that must not keep the last words from being said.
                console.print(Text(f"not kept: {error}"), soft_wrap=True)
        reports.print_summary(facts, console)
    exit_code = _last_words(run, ending, message, debug)
    if facts and report:
        reports.write(facts, report)
    return exit_code


def cut_text(plan: Plan) -> str:
    """Where ``--max_step`` ends the plan; empty where it does not."""
    if plan.batches == plan.batches_per_epoch * plan.epochs:
        return ""
    return f", cut at --max_step={plan.max_step} in epoch {plan.epochs_run}"


def start_lines(run: RunDirectory, spec: JobSpec) -> list[str]:
    """What the user is told before anything starts."""
    plan = spec.plan
    threads = threads_each(spec.workers + spec.ps)
    work = (
        f"{plan.records_per_epoch:,} records x {plan.epochs} epochs{cut_text(plan)} = "
        f"{plan.batches:,} batches in {plan.tasks:,} tasks"
    )
    each = "1 thread" if threads == 1 else f"{threads} threads"
    return [
        f"job {spec.job}: {work}, seed {plan.seed}",
        f"{spec.workers} workers and {spec.ps} ps with {each} each; logs in {run.logs}",
    ]


def _local_job(
    run: RunDirectory, record: JobRecord, spec: JobSpec, watcher: Watcher, command: Callable[[Service], list[str]]
) -> LocalJob:
    spawner = Spawner()
    broker: Broker = OwnBroker(spawner, run) if record.own_nats else ForeignBroker(record.nats_url)

    async def connect(url: str) -> Bus:
        from elasticdl.shared.bus import nats_bus

        watcher.note(nats_url=url)
        return await nats_bus.connect(
            url, spec.job, BusSettings(lease_s=spec.limits.lease_s, run_directory=str(run.path))
        )

    base = {**os.environ, "TMPDIR": record.temporary} if record.temporary else os.environ
    return LocalJob(
        run=run,
        broker=broker,
        connect=connect,
        environment=job_environment(base, spec, run, secrets.token_hex(16)),
        audience=watcher,
        spawner=spawner,
        forks=ForkServers(spawner, command) if command is service_command else None,
        command=command,
    )


def _last_words(run: RunDirectory, ending: Ending, message: str, debug: bool) -> int:
    state = ending.state.job_state
    if state is JobState.SUCCEEDED:
        return exit_codes.DONE
    errors = Console(stderr=True, highlight=False)
    guilty = ending.state.failure.guilty if ending.state.failure else ""
    if not ending.interrupted or state is JobState.FAILED:
        errors.print(Text.assemble(("Error: ", "bold red"), message.rstrip()), soft_wrap=True)
        if guilty:
            errors.print(Text(f"The log of {guilty}: {run.log(guilty)}"), soft_wrap=True)
        if guilty and debug:
            errors.print(Text(tail(run.log(guilty), _DEBUG_LINES)), soft_wrap=True)
    gone = "Train anew: what the job had learned was in that folder, or can't be found without it."
    errors.print(Text(next_step(run, ending.state) if run.is_there() else gone), soft_wrap=True)
    return exit_codes.INTERRUPTED if ending.interrupted and state is not JobState.FAILED else exit_codes.FAILED
