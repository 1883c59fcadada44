"""The commands that start new jobs: ``elasticdl train``, ``elasticdl evaluate`` and ``elasticdl predict``."""

from __future__ import annotations

import typer

from elasticdl.cli import exit_codes
from elasticdl.cli.kubernetes.flags import KubernetesFlags
from elasticdl.cli.opening import root_of
from elasticdl.cli.options import PrintJobFile, given_values, types_of
from elasticdl.cli.submission.flags import TrainFlags
from elasticdl.cli.submission.trained_model.flags import EvaluateFlags, PredictFlags
from elasticdl.shared.process.clock import SystemClock


def train(
    flags: TrainFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Train a model.

    Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted (the job can be resumed).
    """
    started_s = SystemClock().now()
    flags.check()
    pods.check(flags.platform)
    if print_job_file:
        raise typer.Exit(_print_job_file(context, flags, pods))
    if flags.platform == "kubernetes":
        from elasticdl.cli.kubernetes.new_job import start

        raise typer.Exit(start.start(flags, pods, started_s))
    try:
        from elasticdl.cli.commands.train import train

        code = train(flags, root_of(flags.run_dir), started_s)
    except KeyboardInterrupt:
        what = "dry run" if flags.dry_run else "job"
        typer.echo(f"Interrupted before training began; nothing is left of the {what}.", err=True)
        code = exit_codes.INTERRUPTED
    raise typer.Exit(code)


def evaluate(
    flags: EvaluateFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Evaluate a trained model on data with labels. Every record counts exactly once. Exit codes as of train."""
    raise typer.Exit(_run_trained_model(flags, pods, context, prints=print_job_file))


def predict(
    flags: PredictFlags, pods: KubernetesFlags, context: typer.Context, print_job_file: PrintJobFile = False
) -> None:
    """Write the predictions of a trained model for data. Every record is predicted exactly once.

    Exit codes as of train.
    """
    raise typer.Exit(_run_trained_model(flags, pods, context, prints=print_job_file))


def _run_trained_model(
    flags: EvaluateFlags | PredictFlags, pods: KubernetesFlags, context: typer.Context, *, prints: bool
) -> int:
    started_s = SystemClock().now()
    flags.check()
    pods.check(flags.platform)
    if prints:
        return _print_job_file(context, flags, pods)
    if flags.platform == "kubernetes":
        from elasticdl.cli.kubernetes.new_job import start

        return start.start(flags, pods, started_s)
    from elasticdl.cli.commands.trained_model import run

    return run(flags, root_of(flags.run_dir), started_s)


def _print_job_file(
    context: typer.Context, flags: TrainFlags | EvaluateFlags | PredictFlags, pods: KubernetesFlags
) -> int:
    from elasticdl.cli.job_file import job_file_text

    known = types_of(type(flags), KubernetesFlags)
    typer.echo(job_file_text(context.info_name or "train", given_values(context, flags, pods), known), nl=False)
    return exit_codes.SUCCESS
