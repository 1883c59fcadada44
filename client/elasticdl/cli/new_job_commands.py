"""The commands that start new jobs: ``elasticdl train``, ``elasticdl evaluate`` and ``elasticdl predict``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from elasticdl.cli import exit_codes
from elasticdl.cli.jobs.accepted import JOB_VARIABLE
from elasticdl.cli.opening import root_of
from elasticdl.cli.options import PrintJobFile, given_values
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import PATH_FLAGS
from elasticdl.shared.job.kind_options import CommandFlags, EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import Flag, flags_of, types_of
from elasticdl.shared.job.script_options import ScriptFlags
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.names import JobId, Service, check_job_name
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.words import listed


def train(
    flags: TrainFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Train a model.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (the job can be resumed).
    """
    what = "dry run" if flags.dry_run else "job"
    interrupted = f"Interrupted before training began; nothing is left of the {what}."
    _new_job(flags, pods, context, interrupted, prints=print_job_file)


def evaluate(
    flags: EvaluateFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Evaluate a trained model on data with labels. Every record counts exactly once. Exit codes as of train."""
    _new_job(flags, pods, context, _INTERRUPTED, prints=print_job_file)


def predict(
    flags: PredictFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Write the predictions of a trained model for data. Every record is predicted exactly once.

    Exit codes as of train.
    """
    _new_job(flags, pods, context, _INTERRUPTED, prints=print_job_file)


def run(
    flags: ScriptFlags,
    pods: KubernetesFlags,
    context: typer.Context,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python script that calls fit() of Keras models.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENTS", help="Arguments of the script.")] = None,
    resume: Annotated[
        str,
        Flag(
            "Run the script again, and continue it at the fit() whose job was interrupted or stopped. Earlier calls of "
            "fit() take the results of their jobs.",
            metavar="JOB",
        ),
    ] = "",
    progress: Annotated[
        Literal["job", "fit"],
        Flag(
            "What a job shows while it runs: job: workers, speed, messages and a report; fit: Keras' lines, with the "
            "loss and the metrics of each epoch.",
            metavar="KIND",
        ),
    ] = "job",
) -> None:
    """Run a Keras script as it is: each fit() in it becomes a job, and the lines after it see the trained model.

    Options of this command come before the script. Exit codes: that of the script; as of train if a job fails.
    """
    from elasticdl.cli.script.runner import run_script
    from elasticdl.cli.submission.extras import check_extras

    check_extras()
    # Before the script runs, which may take long until its first fit().
    values = {name: getattr(flags, name) for name in flags_of(ScriptFlags)}
    for_job = TrainFlags(model_def=str(script), training_data=str(script), **values)
    _check(for_job, pods, given_values(context, flags, pods))
    for name in ("yaml", "trainingjob"):
        if getattr(pods, name):
            raise UserError(
                f"--{name} starts no job that elasticdl run can wait for, and the lines after fit() need its result",
                hint="Leave it out, or write a model file for elasticdl train.",
                usage=True,
            )
    if progress == "fit" and flags.platform == "kubernetes":
        raise UserError(
            "--progress=fit shows jobs on this machine only, and --platform=kubernetes is given",
            hint="Leave one of them out.",
            usage=True,
        )
    root = root_of(flags.run_dir)
    as_fit = progress == "fit"
    raise typer.Exit(run_script(flags, pods, script, arguments or [], root, resume, as_fit=as_fit))


_INTERRUPTED = "Interrupted before the job began; nothing is left of it."


def _new_job(
    flags: CommandFlags,
    pods: KubernetesFlags,
    context: typer.Context,
    interrupted: str,
    *,
    prints: bool,
) -> None:
    """Start a job, or print its job file, and end the command.

    Args:
        interrupted: what Ctrl-C prints before the job runs on this machine.
    """
    started_s = SystemClock().now()
    given = given_values(context, flags, pods)
    _check_paths(given)
    _check(flags, pods, given)
    if prints:
        from elasticdl.cli.job_file import job_file_text

        known = types_of(type(flags), KubernetesFlags)
        typer.echo(job_file_text(context.info_name or "train", given, known), nl=False)
        raise typer.Exit(exit_codes.SUCCESS)
    if flags.platform == "kubernetes":
        from elasticdl.cli.kubernetes.new_job.start import start as start_on_kubernetes

        job = os.environ.pop(JOB_VARIABLE, "")
        raise typer.Exit(start_on_kubernetes(flags, pods, started_s, JobId(job) if job else None))
    try:
        code = _start_here(flags, started_s)
    except KeyboardInterrupt:
        typer.echo(interrupted, err=True)
        code = exit_codes.INTERRUPTED
    raise typer.Exit(code)


def _check(flags: CommandFlags, pods: KubernetesFlags, given: Mapping[str, Any]) -> None:
    """Refuse values that contradict each other, or the platform."""
    flags.check()
    if isinstance(flags, TrainFlags):
        flags.check_given(given)
    if flags.job_name:
        check_job_name(flags.job_name)
    pods.check(flags.platform)


def _check_paths(given: Mapping[str, Any]) -> None:
    """Refuse paths that are given and empty: the default for a flag that is not given is not what was meant."""
    for name in (*PATH_FLAGS, "model_def", "model", "initial_model", "output"):
        if name in given and not listed(given[name]):
            raise UserError(
                f"--{name} is empty",
                hint="Give a path, or leave the flag out. A shell variable that is not set has no text.",
                usage=True,
            )


def _start_here(flags: CommandFlags, started_s: float) -> int:
    """Begin to import TensorFlow, and then everything that a new job needs; returns the exit code."""
    from elasticdl.cli.background import Accept, run_in_background
    from elasticdl.cli.local.processes.fork_server import fork_servers
    from elasticdl.cli.submission.extras import check_extras
    from elasticdl.cli.submission.flag_items import parse_envs
    from elasticdl.cli.submission.seed import seed_of, with_seed

    job = os.environ.pop(JOB_VARIABLE, "")

    def run(accept: Accept | None) -> int:
        seeded = with_seed(flags)
        processes = flags.processes
        with fork_servers(processes=processes, seed=seed_of(seeded), envs=parse_envs(flags.envs)) as forks:
            forks.begin(None, [Service.WORKER])
            from elasticdl.cli.commands.new_job import start

            return start(seeded, root_of(flags.run_dir), forks, started_s, accept, JobId(job) if job else None)

    check_extras()
    return run_in_background(run) if flags.detach else run(None)
