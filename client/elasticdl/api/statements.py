"""SQL from Python, and in notebooks as ``%%sql``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticdl.api.commands import run
from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.opening import root_of
from elasticdl.cli.sql.command import MODELS
from elasticdl.cli.sql.jobs import ended_job, find_job
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.options import flags_of
from elasticdl.sql.attached import Attached
from elasticdl.sql.jobs import COMMANDS, EndedJob, JobOfTraining
from elasticdl.sql.parsing import parse, render
from elasticdl.sql.registry import Registry
from elasticdl.sql.results import Result
from elasticdl.sql.run import ROWS_MAX, Session
from elasticdl.sql.statements import StatementError


def sql(
    statements: str,
    *,
    database: str | Path | Sequence[str | Path] = (),
    run_dir: str | Path = "",
    rows_max: int = ROWS_MAX,
    shows: bool = True,
) -> Result:
    """Run SQL statements, as ``elasticdl sql`` does.

    Args:
        statements: one, or several with semicolons between them.
        database: a DuckDB or SQLite file, a folder of Parquet, CSV or JSON files, ``postgresql://...``, or several of
            them; not given: the tables that the package ships.
        run_dir: folder that holds one folder per job; ``$ELASTICDL_RUN_DIR`` or the user's own if not given.
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
    result = None
    with Attached([str(each) for each in places]) as attached:
        session = Session(
            databases=attached,
            registry=Registry(root / MODELS),
            jobs=_Jobs(root, run_dir, shows=shows),
            display=_Display(shows=shows),
            rows_max=rows_max,
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
        arguments = as_flags(flags, flags_of(COMMANDS[command]), command)
        run(command, *arguments, f"--report={report}", *self._place, shows=self._shows)
        return ended_job(report)

    def find(self, output: Path) -> JobOfTraining | None:
        """See ``Jobs``."""
        return find_job(self._root, output)


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
