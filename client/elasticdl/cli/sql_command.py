"""The command ``elasticdl sql``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elasticdl.cli.opening import root_of
from elasticdl.shared.job.job_options import RunDir
from elasticdl.shared.job.options import Flag
from elasticdl.shared.kubernetes.options import Namespace


def sql(
    statement: Annotated[
        list[str] | None,
        typer.Option("--execute", "-e", metavar="SQL", help="Statements to run. Can be given several times."),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", metavar="FILE", help="File with statements to run. Can be given several times."),
    ] = None,
    database: Annotated[
        list[str] | None,
        typer.Option(
            "--database",
            "-d",
            metavar="DATABASE",
            help="A DuckDB or SQLite file, a folder of Parquet, CSV or JSON files, or postgresql://HOST/NAME. Can be "
            "given several times. Credentials of Postgres come from its environment variables or its service file.",
            show_default="the tables that ElasticDL ships: employee, iris, census and housing",
        ),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(
            "--storage",
            metavar="DIR",
            help="Folder or s3://bucket/prefix for models, rows and snapshots of jobs.",
            show_default="in the run directory",
        ),
    ] = "",
    platform: Annotated[
        Literal["local", "kubernetes"],
        typer.Option(help="Where to run jobs. On kubernetes, --storage has to be in object storage.", metavar="NAME"),
    ] = "local",
    namespace: Namespace = "",
    as_json: Annotated[bool, Flag("Print one JSON object with the results.", name="json")] = False,
    run_dir: RunDir = None,
) -> None:
    """Train models with SQL, predict and evaluate with them: SELECT * FROM employee LABEL income INTO my_model.

    Without -e and -f: an interactive shell, or the statements of standard input. Statements run in their order, up to
    the first that fails. Exit codes: 0 success, 1 failure, 2 a wrong statement, 130 interrupted.
    """
    from elasticdl.cli.sql.command import run_sql

    options = {"storage": storage, "namespace": namespace, "platform": platform if platform != "local" else ""}
    given = {name: value for name, value in options.items() if value}
    raise typer.Exit(run_sql(statement or [], file or [], database or [], root_of(run_dir), given, as_json=as_json))
