"""The commands ``elasticdl events JOB`` and ``elasticdl events export JOB FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from elasticdl.cli.opening import open_readable
from elasticdl.cli.options import POINT, JobOrFile, Until, command
from elasticdl.shared.job.job_options import RunDir
from elasticdl.shared.job.options import Flag
from elasticdl.shared.kubernetes.options import Namespace


class DefaultGroup(TyperGroup):
    """A group whose first command is the one that runs without its name."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the name of the first command before arguments that name none."""
        return super().parse_args(ctx, self.named(args))

    def named(self, arguments: list[str]) -> list[str]:
        """The arguments, with the name of a command."""
        if arguments and arguments[0] not in (*self.commands, "-h", "--help"):
            return [next(iter(self.commands)), *arguments]
        return arguments


events = typer.Typer(
    cls=DefaultGroup,
    no_args_is_help=True,
    help="Print the event log of a job, one line per event: elasticdl events JOB. Or export it to a file.",
)


@command(events, "show")
def show(
    job: JobOrFile,
    since: Annotated[str, Flag(f"The first event to print: {POINT}.", metavar="POINT", shows="the first one")] = "",
    until: Until = "",
    kind: Annotated[
        list[str] | None,
        Flag(
            "Only events of these types, separated by commas, such as PodExited or WorkerLost.",
            name="type",
            metavar="TYPES",
            shows="all",
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        Flag(
            "Only events with this value in a field: worker=worker-3 (sent by it, or about it), task=17, "
            "cause=preempted. Can be given several times.",
            metavar="FIELD=VALUE",
            shows="all",
        ),
    ] = None,
    follow: Annotated[bool, Flag("Print new events until the job ends or its launcher is gone.", letter="f")] = False,
    as_json: Annotated[bool, Flag("Print one JSON object per line.", name="json")] = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Print the event log of a job, one line per event. The name "show" may be left out."""
    from elasticdl.cli.commands.events import EventQuery, events
    from elasticdl.shared.words import listed

    types = [name for text in kind or () for name in listed(text)]
    query = EventQuery(since=since, until=until, types=types, where=where or ())
    events(open_readable(job, run_dir, namespace), query, follow=follow, as_json=as_json)


@command(events, "decode")
def decode(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="A file with messages. Default: what another command writes to it.")
    ] = "-",
    subject: Annotated[
        str, Flag("The file holds the data of one message of this subject, without JSON.", metavar="SUBJECT")
    ] = "",
) -> None:
    """Print messages of a job as text, as NATS' own tools print them in JSON, one object after the other.

    Example: nats stream get EDL-digits-290fe7-EVENTS 12 --json | elasticdl events decode
    """
    from elasticdl.cli.commands.decoding import decode

    decode(file, subject)


@command(events, "export")
def export(
    job: JobOrFile,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write. One that exists is replaced.")],
    anonymize: Annotated[
        bool,
        Flag("Replace names and paths, and leave out the text of user code. Names of metrics stay."),
    ] = False,
    run_dir: RunDir = None,
    namespace: Namespace = "",
) -> None:
    """Write the event log of a job to a compressed file, for a bug report for instance.

    Every command that inspects a job takes this file in place of the job. The file has no values of environment
    variables, no parameters of data readers and no records.
    """
    from elasticdl.cli.commands.events import export_events

    export_events(open_readable(job, run_dir, namespace), file, anonymize=anonymize)
