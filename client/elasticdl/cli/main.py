"""The application ``elasticdl``: commands, their help, and what an error looks like.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import structlog
import typer

from elasticdl.cli import exit_codes
from elasticdl.cli.commands import options as o
from elasticdl.cli.submission.flags import PS_MAX, WORKERS_MAX, TrainFlags, plain_switches
from elasticdl.shared.errors import ElasticDLError, UserError

LATER = {"allow_extra_args": True, "ignore_unknown_options": True}
JOBS, DATA, TRAIN = "Jobs", "Data and models", "Run"
DEFAULTS = TrainFlags(model_def="", training_data="")

app = typer.Typer(
    name="elasticdl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    help="Elastic deep learning that knows what it has learned: one command trains a Keras model on workers and "
    "parameter servers, and every minibatch counts exactly once, whoever is killed.",
    epilog="A first run: [bold]elasticdl zoo data mnist mnist[/bold], then [bold]elasticdl train "
    "--model_def=mnist_functional_api.custom_model --training_data=mnist/train --output=output[/bold]",
)
zoo = typer.Typer(no_args_is_help=True, help="Example models and the data that they learn from.")
data = typer.Typer(no_args_is_help=True, help="Data sets.")
app.add_typer(zoo, name="zoo", rich_help_panel=DATA)
app.add_typer(data, name="data", rich_help_panel=DATA)


def main() -> None:
    """Entry point of the ``elasticdl`` command."""
    arguments = plain_switches(sys.argv[1:], o.SWITCHES)
    # What libraries of ours log is for their services' files; here everything worth knowing is said in a sentence.
    level = logging.DEBUG if "--debug" in arguments else logging.CRITICAL
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        app(args=arguments)
    except ElasticDLError as error:
        if "--debug" in arguments:
            raise
        show_error(error)
        sys.exit(exit_codes.USAGE if isinstance(error, UserError) and error.usage else exit_codes.FAILED)


def show_error(error: Exception) -> None:
    """One clear message on stderr."""
    typer.echo(f"{typer.style('Error:', fg='red', bold=True)} {error}", err=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elasticdl {version('elasticdl')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command(rich_help_panel=TRAIN, no_args_is_help=True)
def train(
    model_def: o.ModelDef,
    training_data: o.TrainingData,
    model_zoo: o.ModelZoo = DEFAULTS.model_zoo,
    model_params: o.ModelParams = DEFAULTS.model_params,
    validation_data: o.ValidationData = DEFAULTS.validation_data,
    output: o.Output = DEFAULTS.output,
    csv_header: o.CsvHeader = DEFAULTS.csv_header,
    csv_delimiter: o.CsvDelimiter = DEFAULTS.csv_delimiter,
    job_name: o.JobName = DEFAULTS.job_name,
    minibatch_size: o.MinibatchSize = DEFAULTS.minibatch_size,
    num_minibatches_per_task: o.MinibatchesPerTask = DEFAULTS.num_minibatches_per_task,
    num_epochs: o.Epochs = DEFAULTS.num_epochs,
    max_step: o.MaxStep = DEFAULTS.max_step,
    shuffle: o.ShuffleOption = DEFAULTS.shuffle,
    seed: o.Seed = DEFAULTS.seed,
    evaluation_steps: o.EvaluationSteps = DEFAULTS.evaluation_steps,
    evaluation_throttle_secs: o.EvaluationThrottle = DEFAULTS.evaluation_throttle_secs,
    grads_to_wait: o.GradsToWait = DEFAULTS.grads_to_wait,
    lr_staleness_modulation: o.StalenessModulation = DEFAULTS.lr_staleness_modulation,
    eager: o.Eager = DEFAULTS.eager,
    num_workers: o.Workers = DEFAULTS.num_workers,
    num_ps_pods: o.PsPods = DEFAULTS.num_ps_pods,
    distribution_strategy: o.StrategyOption = DEFAULTS.distribution_strategy,
    platform: o.PlatformOption = DEFAULTS.platform,
    envs: o.Envs = DEFAULTS.envs,
    checkpoint_steps: o.CheckpointSteps = DEFAULTS.checkpoint_steps,
    checkpoint_dir: o.CheckpointDir = DEFAULTS.checkpoint_dir,
    storage: o.Storage = DEFAULTS.storage,
    nats_url: o.NatsUrl = DEFAULTS.nats_url,
    run_dir: o.RunDir = DEFAULTS.run_dir,
    report: o.Report = DEFAULTS.report,
    log_level: o.LogLevelOption = DEFAULTS.log_level,
    dry_run: o.DryRun = DEFAULTS.dry_run,
    debug: o.Debug = DEFAULTS.debug,
) -> None:
    """Train a model.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (and can be resumed).
    """
    flags = TrainFlags(**locals())
    flags.check()
    from elasticdl.cli.commands import train as command

    raise typer.Exit(command.train(flags, _root_of(run_dir)))


@app.command(rich_help_panel=TRAIN, context_settings=LATER)
def evaluate() -> None:
    """Evaluate a trained model (not available yet)."""
    raise UserError("elasticdl evaluate is not available in this version; train with --validation_data.", usage=True)


@app.command(rich_help_panel=TRAIN, context_settings=LATER)
def predict() -> None:
    """Predict with a trained model (not available yet)."""
    raise UserError("elasticdl predict is not available in this version; load OUTPUT/model.keras instead.", usage=True)


@app.command(rich_help_panel=TRAIN)
def resume(
    job: o.Job,
    num_ps_pods: Annotated[
        int,
        typer.Option("--num_ps_pods", min=0, max=PS_MAX, help="How many parameter servers; 0: as many as before."),
    ] = 0,
    run_dir: o.RunDir = None,
    report: o.Report = None,
    debug: o.Debug = False,
) -> None:
    """Go on with a job that was stopped, interrupted or lost its machine, from its last snapshots."""
    from elasticdl.cli.commands import resume as command

    raise typer.Exit(command.resume(job, _root_of(run_dir), report, ps=num_ps_pods, debug=debug))


@app.command(rich_help_panel=JOBS)
def stop(job: o.Job, run_dir: o.RunDir = None) -> None:
    """Stop a running job so that it can be resumed."""
    from elasticdl.cli.commands import jobs

    jobs.stop(job, _root_of(run_dir))


@app.command(rich_help_panel=JOBS)
def scale(
    job: o.Job,
    workers: Annotated[
        int,
        typer.Option("--workers", min=0, max=WORKERS_MAX, help="How many workers from now on; 0: as many as before."),
    ] = 0,
    ps: Annotated[
        int,
        typer.Option("--ps", min=0, max=PS_MAX, help="How many parameter servers from now on; 0: as many as before."),
    ] = 0,
    run_dir: o.RunDir = None,
) -> None:
    """Change the number of workers or parameter servers of a running job.

    Training goes on. With another number of parameter servers parts of the model move; pushes wait for the last of it.
    """
    from elasticdl.cli.commands import jobs

    jobs.scale(job, _root_of(run_dir), workers=workers, ps=ps)


@app.command(rich_help_panel=JOBS)
def chaos(
    job: o.Job,
    kill: Annotated[
        list[str],
        typer.Option(
            "--kill",
            help="Who, and the mean time: worker:5s, ps:20s, master:30s, nats-server:30s, ps+master:30s, all-ps:60s.",
        ),
    ],
    duration: Annotated[float, typer.Option("--duration", min=0, help="Seconds; 0: until the job ends.")] = 0.0,
    seed: Annotated[int | None, typer.Option("--seed", help="For the same kills again.")] = None,
    run_dir: o.RunDir = None,
) -> None:
    """Kill processes of a running job at random: its audit has to be exact all the same."""
    from elasticdl.cli.commands import chaos as command

    rates = [command.parse_rate(text) for text in kill]
    command.chaos(job, _root_of(run_dir), rates, duration_s=duration, seed=seed)


@app.command("jobs", rich_help_panel=JOBS)
def list_jobs(run_dir: o.RunDir = None) -> None:
    """List the jobs of this machine."""
    from elasticdl.cli.commands import jobs

    jobs.list_jobs(_root_of(run_dir))


@app.command(rich_help_panel=JOBS)
def clean(
    jobs: Annotated[list[str] | None, typer.Argument(help="Jobs to remove; without any: by age and state.")] = None,
    older_than_days: Annotated[
        float, typer.Option("--older_than_days", min=0, help="Remove jobs that ended at least so many days ago.")
    ] = 7.0,
    all_: Annotated[
        bool, typer.Option("--all", help="Remove jobs that could be resumed as well, not only finished ones.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry_run", help="Only say what would be removed.")] = False,
    run_dir: o.RunDir = None,
) -> None:
    """Remove run directories of jobs that are over: logs, snapshots, history. Exported models stay."""
    from elasticdl.cli.commands import jobs as command

    command.clean(_root_of(run_dir), jobs or [], older_than_days=older_than_days, unfinished=all_, dry_run=dry_run)


@app.command(rich_help_panel=JOBS)
def status(
    job: o.Job,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    run_dir: o.RunDir = None,
) -> None:
    """Show how a job stands: progress, pods, evaluations, snapshots."""
    from elasticdl.cli.commands import inspect

    inspect.status(job, _root_of(run_dir), as_json=as_json)


@app.command(rich_help_panel=JOBS)
def tasks(
    job: o.Job,
    run_dir: o.RunDir = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Tasks shown at most.")] = 50,
) -> None:
    """Show a job's tasks: which are finished, in whose hands, waiting, failed."""
    from elasticdl.cli.commands import inspect

    inspect.tasks(job, _root_of(run_dir), limit)


@app.command(rich_help_panel=JOBS)
def task(
    job: o.Job,
    number: Annotated[int, typer.Argument(metavar="N", min=0, help="The task's number.")],
    purpose: Annotated[str, typer.Option("--purpose", help="train, evaluate, merge or export.")] = "train",
    run_dir: o.RunDir = None,
) -> None:
    """Tell the story of one task: every dispatch, delivery, failure and result."""
    from elasticdl.cli.commands import inspect

    inspect.task(job, _root_of(run_dir), number, purpose)


@app.command(rich_help_panel=JOBS)
def events(
    job: o.Job,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the job is final, or nobody keeps it.")
    ] = False,
    run_dir: o.RunDir = None,
) -> None:
    """Print a job's event log, one line per event."""
    from elasticdl.cli.commands import inspect

    inspect.events(job, _root_of(run_dir), follow=follow)


@app.command(rich_help_panel=JOBS)
def replay(
    job: o.Job,
    until: Annotated[int, typer.Option("--until", metavar="SEQ", min=0, help="Last event to fold (0: all).")] = 0,
    verify: Annotated[
        bool, typer.Option("--verify", help="Fold from the beginning, and decide again whatever was decided.")
    ] = False,
    run_dir: o.RunDir = None,
) -> None:
    """Show what the master knew after a given event, by folding the log again."""
    from elasticdl.cli.commands import inspect

    if not inspect.replay(job, _root_of(run_dir), until, check=verify):
        raise typer.Exit(exit_codes.FAILED)


@zoo.command("data")
def zoo_data(
    name: Annotated[str, typer.Argument(help="mnist, census or deepfm.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write into.")],
    records: Annotated[
        int | None, typer.Option("--records", metavar="N", help="Training records (census, deepfm).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same data.")] = 0,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="DIR", help="Folder of the real MNIST files, to be converted.")
    ] = None,
) -> None:
    """Write the example data of a model in the zoo: DIR/train and DIR/test."""
    from elasticdl.cli.commands.zoo import write_example

    write_example(name, folder, records, seed, source)


@data.command("put")
def data_put(
    source: Annotated[Path, typer.Argument(metavar="SRC", help="Local file or folder.")],
    destination: Annotated[str, typer.Argument(metavar="DEST", help="s3://bucket/prefix")],
) -> None:
    """Upload a data set to object storage."""
    from elasticdl.cli.commands import data as command

    command.upload(source, destination)


def _root_of(run_dir: Path | None) -> Path:
    from elasticdl.cli.jobs.run_directory import default_root

    return run_dir.expanduser().absolute() if run_dir else default_root(os.environ)


if __name__ == "__main__":
    main()
