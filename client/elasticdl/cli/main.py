"""The application ``elasticdl``: its commands, their help texts, and how errors are shown.

Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from elasticdl.cli import ended_job_commands, exit_codes, inspecting_commands, new_job_commands
from elasticdl.cli.application import new_application, run_application
from elasticdl.cli.data_commands import data, zoo
from elasticdl.cli.event_commands import events
from elasticdl.cli.fleet_commands import fleet, trainingjob
from elasticdl.cli.opening import open_job, open_readable, root_of
from elasticdl.cli.options import Job, Json, command, plain_switches, split_script, with_default_choice
from elasticdl.cli.sql_command import sql
from elasticdl.shared.job.job_options import PS_MAX, WORKERS_MAX, RunDir
from elasticdl.shared.job.kind_options import EvaluateFlags, PredictFlags, TrainFlags
from elasticdl.shared.job.options import UNLIMITED, Flag, Seconds, types_of
from elasticdl.shared.kubernetes.options import KubernetesFlags, Namespace
from elasticdl.shared.words import listed

JOBS, DATA, TRAIN, CLUSTERS = "Jobs", "Data and models", "Run", "Shared clusters"

app = new_application()
for name, group in (("zoo", zoo), ("data", data)):
    app.add_typer(group, name=name, rich_help_panel=DATA)
app.add_typer(fleet, name="fleet", rich_help_panel=CLUSTERS)
app.add_typer(trainingjob, name="trainingjob", rich_help_panel=CLUSTERS)


def main() -> None:
    """Run the command of this process, and end the process; ``elasticdl.cli.__main__`` handles signals."""
    given, of_script = split_script(sys.argv[1:])
    arguments = plain_switches(given, TrainFlags, EvaluateFlags, PredictFlags)
    arguments = with_default_choice(arguments, "--trainingjob", types_of(KubernetesFlags)["trainingjob"].choices)
    run_application(app, arguments, of_script)


command(app, panel=TRAIN, bare_help=True)(new_job_commands.train)
command(app, panel=TRAIN, bare_help=True)(new_job_commands.evaluate)
command(app, panel=TRAIN, bare_help=True)(new_job_commands.predict)
command(app, panel=TRAIN)(sql)
command(app, panel=TRAIN, bare_help=True, for_script=True)(new_job_commands.run)
for each in (ended_job_commands.resume, ended_job_commands.export):
    command(app, panel=TRAIN)(each)


@command(app, panel=JOBS)
def attach(job: Job, run_dir: RunDir = None, namespace: Namespace = "") -> None:
    """Show a running job as the terminal in which it was started does. Ctrl-C leaves it running.

    When the job ends, prints its report, and exits with its exit code.
    """
    from elasticdl.cli.commands.attach import attach

    raise typer.Exit(attach(open_job(job, run_dir, namespace)))


@command(app, panel=JOBS)
def stop(job: Job, run_dir: RunDir = None, namespace: Namespace = "") -> None:
    """Stop a running job. It can be resumed later."""
    from elasticdl.cli.commands import jobs

    jobs.stop(open_job(job, run_dir, namespace))


@command(app, panel=JOBS)
def scale(
    job: Job,
    workers: Annotated[
        int | None, Flag("New number of workers.", metavar="N", limits=(1, WORKERS_MAX), shows="unchanged")
    ] = None,
    ps: Annotated[
        int | None, Flag("New number of parameter servers.", metavar="N", limits=(1, PS_MAX), shows="unchanged")
    ] = None,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Change the number of workers or parameter servers of a running job.

    Training continues. Parts of the model move to other parameter servers. Pushes pause briefly at the end of a move.
    """
    from elasticdl.cli.commands import jobs

    jobs.scale(open_job(job, run_dir, namespace), workers=workers or 0, ps=ps or 0)


@command(app, panel=JOBS)
def doctor(
    job: Annotated[
        str, typer.Argument(metavar="[JOB]", help="A job, or its exported event log. Default: check the cluster.")
    ] = "",
    output: Annotated[Path | None, Flag("With JOB: the file to write.", metavar="FILE", shows="JOB-doctor.zip")] = None,
    run_dir: RunDir = None,
    namespace: Namespace = "",
    image_name: Annotated[str, Flag("Image of the workers.", metavar="IMAGE", shows="that of the namespace")] = "",
    image_pull_secrets: Annotated[
        str, Flag("Secrets for the registry of the images, separated by commas.", metavar="NAMES")
    ] = "",
    as_json: Json = False,
) -> None:
    """Say what is wrong: with a job, or with a namespace of a Kubernetes cluster in which jobs are to run.

    With JOB: names problems and what to do, and writes a file for a bug report: report, event log, logs of the
    processes, settings without secrets, versions. Otherwise a pod starts the images at the end of the checks, tries
    NATS and the storage as the pods of a job do, and is deleted.
    """
    if job:
        from elasticdl.cli.commands.looking.bundle import diagnose

        is_fine = diagnose(open_readable(job, run_dir, namespace), output, as_json=as_json)
        raise typer.Exit(exit_codes.SUCCESS if is_fine else exit_codes.FAILURE)
    from elasticdl.cli.kubernetes import doctor

    pull_secrets = list(listed(image_pull_secrets))
    raise typer.Exit(doctor.doctor(namespace, image_name, pull_secrets, as_json=as_json))


@command(app, panel=JOBS)
def chaos(
    job: Job,
    kill: Annotated[
        list[str],
        Flag(
            "What to kill and the mean time between kills: worker:5s, ps:20s, master:30s, nats-server:30s, "
            "ps+master:30s (both at once), all-ps:60s. Can be given several times.",
            metavar="TARGET:S",
        ),
    ],
    duration: Annotated[
        Seconds,
        Flag("Stop after this time, such as 90s or 5m (0: when the job ends).", metavar="S", limits=(0, 1 << 31)),
    ] = UNLIMITED,
    seed: Annotated[int | None, Flag("Seed of the random kills.", metavar="N", shows="random")] = None,
    run_dir: RunDir = None,
) -> None:
    """Kill random processes of a running job, to test that its audit stays exact."""
    from elasticdl.cli.commands import chaos as killing

    rates = [killing.parse_rate(text) for text in kill]
    killing.chaos(job, root_of(run_dir), rates, duration_s=duration, seed=seed)


@command(app, "jobs", panel=JOBS)
def list_jobs(as_json: Json = False, run_dir: RunDir = None, namespace: Namespace = "") -> None:
    """List the jobs on this machine, and those in the namespace of a Kubernetes cluster if there is a kubeconfig."""
    from elasticdl.cli.commands import jobs
    from elasticdl.cli.kubernetes.lookup import has_cluster

    found = [] if namespace else jobs.list_jobs(root_of(run_dir), as_json=as_json)
    if namespace or (has_cluster(os.environ) and not run_dir):
        from elasticdl.cli.kubernetes.listing import list_jobs

        found += list_jobs(namespace, as_json=as_json)
    if as_json:
        from elasticdl.cli.display.consoles import plain_console
        from elasticdl.cli.display.output import print_json

        print_json(plain_console(), {"jobs": found})


@command(app, panel=JOBS)
def clean(
    jobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB", help="Jobs to delete. Default: all old finished jobs."),
    ] = None,
    older_than_days: Annotated[
        float, Flag("Without JOB: delete only jobs that ended this many days ago or earlier.", metavar="DAYS")
    ] = 7.0,
    everything: Annotated[
        bool, Flag("Also delete stopped, failed and interrupted jobs, which could be resumed.", name="all")
    ] = False,
    dry_run: Annotated[bool, Flag("Only print what would be deleted.")] = False,
    yes: Annotated[bool, Flag("Do not ask for confirmation.", letter="y")] = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Delete the folders of finished jobs: logs, snapshots and history. Exported models are kept, and so is --storage.

    Jobs that were killed before they began, and so can't be resumed, are deleted too. With --namespace: delete the
    event logs of finished jobs whose Kubernetes objects are gone; their snapshots stay in the object storage.
    """
    from elasticdl.cli.commands.clean import CleanSettings, clean

    settings = CleanSettings(older_than_days=older_than_days, unfinished=everything, dry_run=dry_run, confirmed=yes)
    if namespace:
        from elasticdl.cli.kubernetes.ended_jobs.clean import clean_namespace

        clean_namespace(namespace, jobs or [], settings)
    else:
        clean(root_of(run_dir), jobs or [], settings)


for inspecting in inspecting_commands.FIRST:
    command(app, panel=JOBS)(inspecting)
app.add_typer(events, name="events", rich_help_panel=JOBS)


@command(app, panel=JOBS)
def logs(
    job: Job,
    pods: Annotated[
        list[str] | None,
        typer.Argument(metavar="POD", help="Processes, such as worker-0, ps-0 or master. Default: all."),
    ] = None,
    lines: Annotated[int, Flag("Lines of each log to print.", metavar="N", limits=(1, 1 << 31))] = 30,
    follow: Annotated[bool, Flag("Print new lines until the job's launcher has ended.", letter="f")] = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Print what the processes of a job have logged, and what the model file has printed."""
    from elasticdl.cli.commands import logs as command

    command.logs(open_job(job, run_dir, namespace), pods or [], lines=lines, follow=follow)


for inspecting in inspecting_commands.LAST:
    command(app, panel=JOBS)(inspecting)


if __name__ == "__main__":
    main()
