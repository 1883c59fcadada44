"""SQL from Python, and in notebooks as ``%%sql``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticdl.api.commands import run
from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.jobs.accepted import JOB_FILE_VARIABLE
from elasticdl.cli.opening import root_of
from elasticdl.cli.sql.command import registry_of
from elasticdl.cli.sql.jobs import cluster_job, ended_job, find_job
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.sql.attached import Attached
from elasticdl.sql.jobs import KUBERNETES, EndedJob, JobOfTraining, JobRefusedError, flags_of_command
from elasticdl.sql.parsing import parse, render
from elasticdl.sql.results import Result
from elasticdl.sql.run import ROWS_MAX, Session
from elasticdl.sql.statements import StatementError


def sql(
    statements: str,
    *,
    database: str | Path | Sequence[str | Path] = (),
    run_dir: str | Path = "",
    storage: str | Path = "",
    platform: str = "local",
    namespace: str = "",
    rows_max: int = ROWS_MAX,
    shows: bool = True,
) -> Result:
    """Run SQL statements, as ``elasticdl sql`` does.

    Args:
        statements: one, or several with semicolons between them.
        database: a DuckDB or SQLite file, a folder of Parquet, CSV or JSON files, ``postgresql://...``, or several of
            them; not given: the tables that the package ships.
        run_dir: folder that holds one folder per job; ``$ELASTICDL_RUN_DIR`` or the user's own if not given.
        storage: folder or ``s3://bucket/prefix`` for models, rows and snapshots; in ``run_dir`` if not given.
        platform: where to run jobs: ``local``, or ``kubernetes``, which needs a ``storage`` in object storage.
        namespace: of the Kubernetes cluster; that of the current context if not given.
        rows_max: rows of a SELECT that are returned.
        shows: print what the statements do.

    Returns:
        The result of the last statement; ``to_pandas()`` gives its rows, ``metrics`` those of its model.

    Raises:
        UserError: a statement is wrong; the message shows where. Nothing has run if one can't be parsed.
        ElasticDLError: a job has failed.
        KeyboardInterrupt: the user interrupted it; the job has been stopped and can be resumed.
    """
    places = [database] if isinstance(database, (str, Path)) else list(database)
    root = root_of(Path(run_dir) if run_dir else None)
    given = {"storage": str(storage), "namespace": namespace, "platform": platform if platform != "local" else ""}
    result = None
    with Attached([str(each) for each in places]) as attached:
        session = Session(
            databases=attached,
            registry=registry_of(root, str(storage)),
            jobs=_Jobs(root, run_dir, shows=shows),
            display=_Display(shows=shows),
            rows_max=rows_max,
            options={name: value for name, value in given.items() if value},
        )
        try:
            for parsed in parse(statements):
                result = session.run(parsed)
        except StatementError as error:
            raise UserError(render(error, statements)) from error
    if result is None:
        raise UserError("there is no statement")
    return result


class _Jobs:
    """See ``elasticdl.sql.jobs.Jobs``."""

    def __init__(self, root: Path, run_dir: str | Path, *, shows: bool) -> None:
        self._root, self._shows = root, shows
        self._place = [f"--run_dir={run_dir}"] * bool(run_dir)

    def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
        """See ``Jobs``."""
        arguments = as_flags(flags, flags_of_command(command), command)
        if flags.get("platform") != KUBERNETES:
            run(command, *arguments, f"--report={report}", *self._place, shows=self._shows)
            return ended_job(report)
        accepted = report.with_name("job")
        accepted.touch()
        try:
            run(command, *arguments, shows=self._shows, envs={JOB_FILE_VARIABLE: str(accepted)})
        except ElasticDLError as error:
            if not accepted.read_text():
                raise JobRefusedError(*error.args) from error
            raise
        return cluster_job(accepted.read_text(), flags)

    def find(self, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
        """See ``Jobs``."""
        return find_job(self._root, output, options)


class _Display:
    """See ``elasticdl.sql.results.Display``."""

    def __init__(self, *, shows: bool) -> None:
        self._shows = shows

    def line(self, text: str) -> None:
        """See ``Display``."""
        if self._shows:
            print(text, flush=True)  # noqa: T201 - the function is called to show it

    def table(self, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """See ``Display``."""
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        self.line(f"{title}:")
        for row in (names, *rows):
            self.line("  " + "  ".join(map(str.ljust, row, widths)).rstrip())


def load_ipython_extension(ipython: Any) -> None:
    """Register ``%%sql``; called by ``%load_ext elasticdl.api``."""

    def cell(line: str, cell: str) -> Result:
        """``%%sql [DATABASE ...]``: run the statements of the cell."""
        return sql(cell, database=shlex.split(line))

    ipython.register_magic_function(cell, "cell", "sql")
