"""The commands of clusters that jobs share: ``elasticdl fleet`` and ``elasticdl trainingjob``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elasticdl.cli.options import Json, command
from elasticdl.shared.job.options import Flag

fleet = typer.Typer(no_args_is_help=True, help="Clusters that jobs share, real and simulated.")
trainingjob = typer.Typer(no_args_is_help=True, help="Objects of the Kubernetes resource TrainingJob.")


@fleet.callback()
@trainingjob.callback()
def _root() -> None:
    pass


@command(fleet, "show")
def fleet_show(
    namespace: Annotated[str, Flag("Namespace of the TrainingJobs.", metavar="NAME", shows="all")] = "",
    watch: Annotated[bool, Flag("Show it again every 2 seconds, until Ctrl+C.")] = False,
    as_json: Json = False,
) -> None:
    """Show the cluster that TrainingJobs share: nodes, who uses them, jobs with reasons, and the last decisions.

    Reads nodes, pods, TrainingJobs and events, as kubectl does, with the current context of its configuration.
    """
    from elasticdl.cli.commands.fleet.show import show

    show(namespace, watch=watch, as_json=as_json)


@command(fleet, "simulate")
def fleet_simulate(
    scenario: Annotated[
        str,
        typer.Argument(
            metavar="SCENARIO",
            help="A YAML file, or edl-case-1, edl-case-1-scaled-ps, edl-case-2, two-jobs, or pollux-0.5, pollux-1.0, "
            "pollux-1.5 or pollux-2.0.",
        ),
    ],
    policy: Annotated[
        list[str] | None,
        Flag(
            "Who decides: ours, gang (all pods of a job at once), or edl (PaddlePaddle EDL's loop of 30 seconds); with "
            "Pollux' workloads ours, tiresias or optimus. Can be given several times.",
            metavar="NAME",
            shows="all three",
        ),
    ] = None,
    seed: Annotated[int, Flag("Seed of the random times. The same seed gives the same result.", metavar="N")] = 0,
    record: Annotated[
        Path | None,
        Flag("Write what the policy ours sees and decides to this file, for fleet replay.", metavar="FILE"),
    ] = None,
    data: Annotated[
        Path | None,
        Flag(
            "Read Pollux' workloads and traces from here: the folder simulator of a checkout of its repository.",
            metavar="FOLDER",
            shows="those of the package",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        Flag("Write the results with curves to this file, too: one page that needs no server.", metavar="FILE"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Simulate jobs and services that share a cluster, and compare policies.

    Prints for each policy how long jobs waited, how much of the CPU was used beside the most that any placement can
    use, and how evenly. With Pollux' workloads: how long jobs took, beside what was published.
    """
    from elasticdl.cli.commands.fleet.simulate import simulate

    simulate(scenario, policy or [], seed, record, data, html, as_json=as_json)


@command(fleet, "replay")
def fleet_replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What a controller has written with --fleet_log, or a simulation.")
    ],
    until: Annotated[
        str,
        Flag(
            "The last decision that counts: its number (355) or a time (17:51:36, +90s after the first one).",
            metavar="POINT",
            shows="the last one",
        ),
    ] = "",
    verify: Annotated[bool, Flag("Decide again with this version's rules, and print what differs.")] = False,
    as_json: Json = False,
) -> None:
    """Show a shared cluster and the controller's decisions as they were, from its log.

    With --verify, the exit code is 1 if a decision differs.
    """
    from elasticdl.cli.commands.fleet.replay import replay

    if not replay(file, until, check=verify, as_json=as_json):
        raise typer.Exit(1)


@command(trainingjob, "convert")
def training_job_convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML file with TrainingJobs of PaddlePaddle EDL.")],
) -> None:
    """Print TrainingJobs of PaddlePaddle EDL (paddlepaddle.org/v1) as those of today.

    A comment tells of each field that has no meaning any more, and of what is left to do.
    """
    from elasticdl.cli.kubernetes.former_training_job import converted_text

    typer.echo(converted_text(file), nl=False)
