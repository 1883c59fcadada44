"""The commands that inspect a job, which take a job or its exported event log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from elasticdl.cli import exit_codes
from elasticdl.cli.opening import open_readable
from elasticdl.cli.options import POINT, Argument, JobOrFile, Json, Until, command, plain_command
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import RunDir
from elasticdl.shared.job.options import Flag
from elasticdl.shared.kubernetes.options import Namespace

if TYPE_CHECKING:
    import typer


def status(
    job: JobOrFile,
    as_json: Json = False,
    evaluations: Annotated[int, Flag("Evaluations to show (0: all).", metavar="N", limits=(0, 1 << 31))] = 5,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Show the status of a job: progress, processes, evaluations, snapshots."""
    from elasticdl.cli.commands import inspect

    inspect.status(open_readable(job, run_dir, namespace), as_json=as_json, evaluations=evaluations)


def report(
    job: JobOrFile,
    html: Annotated[
        Path | None, Flag("Write one page for a browser to this file instead.", metavar="FILE", shows="print")
    ] = None,
    as_json: Json = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Print the report of a job, as at the end of its training. A running job has a report, too.

    The report follows from the event log alone. With --json it is the object that train --report=FILE writes.
    """
    if html is not None:
        from elasticdl.cli.commands.looking.page import report_page

        report_page(open_readable(job, run_dir, namespace), html)
        return
    from elasticdl.cli.commands import inspect

    inspect.report(open_readable(job, run_dir, namespace), as_json=as_json)


def trace(
    job: JobOrFile,
    file: Annotated[
        Path | None,
        Argument("[FILE]", "The file to write, for Perfetto. A .json is in the format of Chrome, a .gz is compressed."),
    ] = None,
    otlp: Annotated[
        str,
        Flag(
            "Send it to this OpenTelemetry collector instead, such as http://localhost:4318.",
            metavar="URL",
            shows="write a file",
        ),
    ] = "",
    since: Annotated[str, Flag(f"The first event of the trace: {POINT}.", metavar="POINT", shows="the first one")] = "",
    until: Until = "",
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Write a trace of a job for Perfetto: what each process did, the parts of each task, and every decision.

    Or send it to an OpenTelemetry collector, with OTLP over HTTP: job, epochs, tasks and their parts.
    """
    from elasticdl.cli.commands.events import EventQuery
    from elasticdl.cli.commands.looking.trace import send_trace, trace

    if (file is None) == (not otlp):
        raise UserError("a trace needs a place", hint="Give a FILE, or --otlp=URL, and not both.", usage=True)
    query = EventQuery(since=since, until=until)
    if file is not None:
        trace(open_readable(job, run_dir, namespace), file, query)
    else:
        send_trace(open_readable(job, run_dir, namespace), otlp, query)


def tensorboard(
    job: JobOrFile,
    logdir: Annotated[
        str, Flag("Folder or s3:// address. The event files are in DIR/JOB.", metavar="DIR", shows="tensorboard")
    ] = "",
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Write TensorBoard event files for a job: loss, metrics, throughput, staleness, goodput, number of workers.

    The job may be running or have ended. Run the command again to add what is new; no point is written twice.
    """
    from elasticdl.cli.commands.tensorboard import tensorboard

    tensorboard(open_readable(job, run_dir, namespace), logdir)


def tasks(
    job: JobOrFile,
    state: Annotated[
        str,
        Flag(
            "Only tasks in this state: finished, running, dispatched, pending, requeued, failed or skipped.",
            metavar="STATE",
        ),
    ] = "",
    worker: Annotated[
        str, Flag("Only tasks that this worker has finished last or is computing.", metavar="WORKER")
    ] = "",
    epoch: Annotated[int, Flag("Only tasks of this epoch (0: of all).", metavar="N", limits=(0, 1 << 31))] = 0,
    slowest: Annotated[
        int, Flag("The N finished tasks that took longest, the slowest first.", metavar="N", limits=(0, 1 << 31))
    ] = 0,
    limit: Annotated[int, Flag("Show at most this many tasks.", metavar="N", limits=(1, 1 << 31))] = 50,
    as_json: Json = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """List the tasks of a job and their states. Finished tasks are shown once the job has ended, or with a filter.

    With --worker or --slowest, also the worker, the seconds, how often it was finished, and the event that says so.
    """
    from elasticdl.cli.commands import inspect
    from elasticdl.views.tasks import TaskQuery

    wanted = inspect.task_filter(state)
    query = TaskQuery(state=wanted, epoch=epoch, worker=worker, slowest=slowest, limit=limit)
    inspect.tasks(open_readable(job, run_dir, namespace), query, as_json=as_json)


def task(
    job: JobOrFile,
    number: Annotated[int, Argument("N", "The number of the task.", least=0)],
    purpose: Annotated[str, Flag("Kind of task: train, evaluate, predict, merge or export.", metavar="KIND")] = "train",
    as_json: Json = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Show the history of one task: every dispatch, delivery, failure and result."""
    from elasticdl.cli.commands import inspect

    inspect.task(open_readable(job, run_dir, namespace), number, purpose, as_json=as_json)


def why(
    job: JobOrFile,
    task: Annotated[
        list[str] | None,
        Argument("[task N]", "One task instead: where its time went. Example: why JOB task 17"),
    ] = None,
    percent: Annotated[
        float, Flag("Give advice about causes of at least this much of the time.", metavar="PERCENT")
    ] = 3.0,
    as_json: Json = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Say where the time of a job went: causes that sum to the wall time, their events, and what to do.

    While a job trains, each of its workers stands for an equal part of every second.
    """
    from elasticdl.cli.commands.looking import why

    number = why.task_number(task or [])
    found = open_readable(job, run_dir, namespace)
    if number is None:
        why.why(found, percent_min=percent, as_json=as_json)
    else:
        why.why_task(found, number, as_json=as_json)


def metrics(
    job: JobOrFile,
    port: Annotated[
        int,
        Flag(
            "Serve /metrics at this port, or the first free one after it.",
            metavar="N",
            limits=(0, 65535),
            shows="print once",
        ),
    ] = 0,
    host: Annotated[str, Flag("Address to serve at.", metavar="HOST")] = "127.0.0.1",
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Print or serve a job's metrics for Prometheus: progress, processes, losses, and where the time went.

    A running job is followed, with the CPU and the memory of its processes. The log of an ended one is read once.
    """
    from elasticdl.cli.commands.looking.metrics import metrics

    metrics(open_readable(job, run_dir, namespace), host, port)


def dashboard(
    jobs: Annotated[
        list[str] | None,
        Argument("JOB", "Jobs, or their exported event logs. Default: all jobs of this machine."),
    ] = None,
    host: Annotated[
        str, Flag("Address to serve at. Others than this machine's own are open to the network.", metavar="HOST")
    ] = "127.0.0.1",
    port: Annotated[int, Flag("Port (0: any that is free).", metavar="N", limits=(0, 65535))] = 0,
    fleet: Annotated[
        Path | None,
        Flag("Show the cluster, too, from the log that a controller writes with --fleet_log.", metavar="FILE"),
    ] = None,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Serve a page that shows jobs live, and replays them: a slider goes to any point of the event log.

    Prints the address, with a token. The page reads only, and needs no network.
    """
    from elasticdl.cli.commands.dashboard import dashboard

    dashboard(jobs or [], run_dir, namespace, host, port, fleet)


def replay(
    job: JobOrFile,
    until: Until = "",
    verify: Annotated[bool, Flag("Start at the first event, re-run every decision of the master and compare.")] = False,
    step: Annotated[
        bool, Flag("Show the decisions one by one. On a terminal, Enter shows the next one; otherwise a line each.")
    ] = False,
    diff: Annotated[str, Flag(f"Show what changed since this point, until --until: {POINT}.", metavar="POINT")] = "",
    simulate: Annotated[
        bool,
        Flag("Continue from there in a model of the job with its own measurements, and say how long it would take."),
    ] = False,
    workers: Annotated[int, Flag("Simulate with so many more workers, or fewer: +2, -1.", metavar="+N")] = 0,
    failures: Annotated[
        bool, Flag("Simulate with or without the losses of processes that happened.", off="no-failures")
    ] = True,
    as_json: Json = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Rebuild the master's state as it was after an event, from the event log.

    Or show its decisions one by one, what changed between two points, or how the job would continue with changes.
    """
    from elasticdl.cli.commands.looking import replay
    from elasticdl.views.points import Point

    modes = {"--verify": verify, "--step": step, "--diff": bool(diff), "--simulate": simulate}
    chosen = [name for name, is_given in modes.items() if is_given]
    if len(chosen) > 1:
        raise UserError(f"{' and '.join(chosen)} are different questions", hint="Give one of them.", usage=True)
    if not simulate and (workers or not failures):
        raise UserError("--workers and --no-failures change a simulation", hint="Add --simulate.", usage=True)
    point = Point.of("until", until) if until else None
    since = Point.of("diff", diff) if diff else None
    found = open_readable(job, run_dir, namespace)
    if step:
        replay.step(found, point, as_json=as_json)
    elif since:
        replay.compare(found, since, point, as_json=as_json)
    elif simulate:
        from elasticdl.views.what_if.simulating import Changes

        replay.continue_in_model(found, point, Changes(workers=workers, failures=failures), as_json=as_json)
    elif not replay.replay(found, point, check=verify, as_json=as_json):
        sys.exit(exit_codes.FAILURE)


FIRST: tuple[Callable[..., None], ...] = (status, report, tensorboard, tasks, task)
LAST: tuple[Callable[..., None], ...] = (replay, why, dashboard, metrics, trace)
"""The commands in the order of ``elasticdl --help``; those for events and logs are between."""
_COMMANDS = {each.__name__: each for each in (*FIRST, *LAST)}


def main() -> None:
    """Run one of these commands; see ``main.py``, which has all commands."""
    name, *arguments = sys.argv[1:]
    run = plain_command(_COMMANDS[name], arguments)
    if run is not None:
        exit_codes.run_guarded(run, arguments)
        return
    from elasticdl.cli.application import run_application

    run_application(application_of(name), sys.argv[1:])


def application_of(name: str) -> typer.Typer:
    """An application with one of these commands, because typer makes the options of all commands of an application."""
    from elasticdl.cli.application import new_application

    app = new_application()
    command(app)(_COMMANDS[name])
    return app
