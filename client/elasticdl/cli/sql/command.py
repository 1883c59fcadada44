"""Runs the statements of ``elasticdl sql``: of -e, of files, of standard input, or of the shell."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from getpass import getpass
from pathlib import Path

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console, print_error
from elasticdl.cli.display.output import print_json
from elasticdl.cli.sql.display import as_json as result_as_json
from elasticdl.cli.sql.display import display_of, show_result
from elasticdl.cli.sql.jobs import CommandJobs, JobFailedError
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.storage import join, to_uri
from elasticdl.shared.words import count
from elasticdl.sql.attached import Attached
from elasticdl.sql.parsing import ParsedStatement, parse, render
from elasticdl.sql.registry import Registry
from elasticdl.sql.results import Result
from elasticdl.sql.run import Session
from elasticdl.sql.statements import StatementError, Train

MODELS = "models"
"""The folder of the registry, beside the folders of jobs."""


def run_sql(
    statements: Sequence[str],
    files: Sequence[Path],
    databases: Sequence[str],
    root: Path,
    options: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    """Run statements; returns the exit code. Without any: those of standard input, or the shell on a terminal.

    Args:
        options: of all jobs: platform, storage, namespace. Models are beside the snapshots, in the storage.

    Raises:
        UserError: a file can't be read, or a statement can't be run.
    """
    with Attached(databases, getpass if sys.stdin.isatty() else None) as attached:
        session = session_of(attached, root, options, as_json=as_json)
        if not statements and not files and sys.stdin.isatty():
            from elasticdl.cli.sql.shell import run_shell

            return run_shell(session)
        script = _script(statements, files)
        results: list[Result] = []
        try:
            return run_script(session, script, results, shows=not as_json)
        finally:
            if as_json:
                print_json(plain_console(), {"results": [result_as_json(each) for each in results]})


def session_of(databases: Attached, root: Path, options: Mapping[str, str], *, as_json: bool = False) -> Session:
    """What statements run with on this machine."""
    return Session(
        databases=databases,
        registry=registry_of(root, options.get("storage", "")),
        jobs=CommandJobs(root, sys.stderr if as_json else None),
        display=display_of(as_json=as_json),
        options=options,
    )


def registry_of(root: Path, storage: str) -> Registry:
    """The models in a storage; empty: those beside the jobs of this machine."""
    return Registry(join(to_uri(storage), MODELS) if storage else root / MODELS, root / MODELS)


def _script(statements: Sequence[str], files: Sequence[Path]) -> str:
    if statements or files:
        texts = list(statements)
        for file in files:
            with file_errors(f"--file={file} can't be read", usage=True):
                texts.append(_read(file))
        return "\n;\n".join(texts) if len(texts) > 1 else texts[0]
    return sys.stdin.read()


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"--file={file} is not UTF-8: {error}", usage=True) from error


def run_script(session: Session, script: str, results: list[Result], *, shows: bool) -> int:
    """Run all statements in order, up to the first that fails; returns the exit code.

    Nothing runs if any of them can't be parsed.

    Args:
        results: gets the result of each statement.
    """
    console = plain_console()
    parsed, done = tuple[ParsedStatement, ...](), 0
    try:
        parsed = parse(script)
        for each in parsed:
            result = session.run(each)
            results.append(result)
            done += 1
            if shows:
                show_result(result, console)
    except StatementError as error:
        show_faults(error, script)
        return exit_codes.USAGE
    except JobFailedError as error:
        _say_what_is_left(len(parsed) - done - 1)
        return error.code
    except KeyboardInterrupt:
        training = len(parsed) > done and _can_be_resumed(session, parsed[done])
        registered = " If the training is resumed, its model is registered when it has succeeded." if training else ""
        sys.stderr.write(f"Interrupted.{registered}\n")
        return exit_codes.INTERRUPTED
    return exit_codes.SUCCESS


def _can_be_resumed(session: Session, interrupted: ParsedStatement) -> bool:
    """Whether a statement has left a training: there is none if it was interrupted before its job began."""
    statement = interrupted.statement
    return isinstance(statement, Train) and bool(session.registry.complete(statement.into.text, lambda _: None))


def _say_what_is_left(left: int) -> None:
    if left:
        sys.stderr.write(f"{count(left, 'more statement')} not run.\n")


def show_faults(error: StatementError, script: str) -> None:
    """Print everything that is wrong with a statement, on stderr."""
    print_error(render(error, script))
