"""The commands ``elasticdl resume`` and ``elasticdl export``, for jobs that have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from elasticdl.cli import exit_codes
from elasticdl.cli.background import Accept, run_in_background
from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.opening import cluster_job, root_of
from elasticdl.cli.options import Job
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.job_options import PS_MAX, Debug, Detach, ReportFile, RunDir
from elasticdl.shared.job.options import Flag
from elasticdl.shared.job.plan import EPOCHS_MAX
from elasticdl.shared.job.spec import ExportTables
from elasticdl.shared.kubernetes.options import Namespace


def resume(
    job: Job,
    num_ps_pods: Annotated[
        int, Flag("Number of parameter servers (0: as before).", metavar="N", limits=(0, PS_MAX))
    ] = 0,
    num_epochs: Annotated[
        int,
        Flag(
            "New total number of epochs (0: as before). Also continues a finished job.",
            metavar="N",
            limits=(0, EPOCHS_MAX),
        ),
    ] = 0,
    output: Annotated[
        str, Flag("Folder or s3:// address for the exported model.", metavar="DIR", shows="as before")
    ] = "",
    skip_tasks: Annotated[
        str | None,
        Flag("Do not train these tasks, which failed for good: 17,20-22. The audit names them.", metavar="TASKS"),
    ] = None,
    rebuild_bus: Annotated[
        bool,
        Flag("Delete the job's event log, tasks and registers if they can't be read. Continue from the snapshots."),
    ] = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
    detach: Detach = False,
    report: ReportFile = None,
    debug: Debug = False,
) -> None:
    """Resume a stopped, interrupted or failed job from its latest snapshots.

    A resume trains tasks again that failed for good; with --skip_tasks it leaves them out.
    With --num_epochs, a job that has finished or stopped early also continues, and trains more epochs.
    """
    changes = ResumeChanges(
        ps=num_ps_pods, epochs=num_epochs, output=output, rebuild_bus=rebuild_bus, skip_tasks=skip_tasks
    )
    if in_cluster := cluster_job(job, run_dir, namespace):
        from elasticdl.cli.kubernetes.ended_jobs import resume as kubernetes

        if report:
            hint = f"When it has ended, write it with: elasticdl report {in_cluster.arguments} --json"
            raise UserError("--report is not available for a job on Kubernetes", hint=hint, usage=True)
        raise typer.Exit(kubernetes.resume(in_cluster, changes, detach=detach))

    def run(accept: Accept | None) -> int:
        from elasticdl.cli.commands.resume import resume

        return resume(job, root_of(run_dir), changes, report, debug=debug, accept=accept)

    try:
        code = run_in_background(run) if detach else run(None)
    except KeyboardInterrupt:
        typer.echo("Interrupted before the job was resumed.", err=True)
        code = exit_codes.INTERRUPTED
    raise typer.Exit(code)


def export(
    job: Job,
    output: Annotated[str, Flag("Folder or s3:// address for the model.", metavar="DIR", shows="as the job")] = "",
    best: Annotated[bool, Flag("Export the best evaluated model, which a job with --save_best keeps.")] = False,
    step: Annotated[
        int | None,
        Flag("Export the version of step N, if it is kept.", metavar="N", limits=(0, 1 << 62), shows="newest"),
    ] = None,
    export_tables: Annotated[
        ExportTables | None,
        Flag(
            "Where the tables of the parameter servers will be: model (in its files), parquet (beside it, as Parquet "
            "files of any size), or auto (parquet if the model would be above 2 GiB or a table has no input_dim).",
            metavar="WHERE",
            shows="as the job",
        ),
    ] = None,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Export the model of a job that has ended, from its snapshots, without training."""
    tables = export_tables.value if export_tables else ""
    settings = ExportSettings(output=output, best=best, step=step, tables=tables)
    if in_cluster := cluster_job(job, run_dir, namespace):
        from elasticdl.cli.kubernetes.ended_jobs import export as kubernetes

        kubernetes.export(in_cluster, settings)
        return
    from elasticdl.cli.local.processes.imports import use_numba_cache

    use_numba_cache()
    from elasticdl.cli.commands.export import export

    export(job, root_of(run_dir), settings)
