"""The interactive shell of ``elasticdl sql``: history, completion, and statements of several lines."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.cli import exit_codes
from elasticdl.cli.display.consoles import plain_console, print_error
from elasticdl.cli.sql.command import run_script
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.sql.completion import Catalogue, completions
from elasticdl.sql.run import Session

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

HISTORY = "sql_history"
_PROMPT, _CONTINUED = "elasticdl> ", "      ...> "
_END = ("exit", "quit", r"\q")
_HELP = """Statements end with a semicolon. To train:    SELECT * FROM employee LABEL income INTO my_model;
To predict:                                SELECT * FROM employee TO PREDICT guesses USING my_model;
To look around:                            SHOW TABLES; DESCRIBE employee; SHOW MODELS;
To see what a statement would do:          EXPLAIN PLAN SELECT ...;
To leave: exit, or ^D. Tab completes names. ^C drops the line, or stops the job."""


class _DroppedError(Exception):
    """The user has dropped what was typed."""


def run_shell(session: Session) -> int:
    """Read statements from the terminal and run them, until the user leaves; returns the exit code.

    Raises:
        UserError: the library of the shell is not installed.
        KeyboardInterrupt: a signal ends the command.
    """
    console = plain_console()
    prompt = _prompt(session)
    console.print(f"ElasticDL on {', '.join(each.url for each in session.databases.all())}. For help: help")
    while True:
        try:
            text = prompt.prompt()
        except _DroppedError:
            continue
        except EOFError:
            return exit_codes.SUCCESS
        match text.strip().rstrip(";").lower():
            case "":
                continue
            case "help" | "?" | r"\?":
                console.print(_HELP)
            case word if word in _END:
                return exit_codes.SUCCESS
            case _:
                _run(session, text)


def _run(session: Session, text: str) -> None:
    try:
        run_script(session, text, [], shows=True)
    except ElasticDLError as error:
        print_error(str(error))


def _prompt(session: Session) -> PromptSession[str]:
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory
    except ImportError as error:
        raise UserError(
            "the shell needs the package prompt_toolkit",
            hint="Install it: pip install 'elasticdl[sql]'. Statements also run with -e SQL and -f FILE.",
        ) from error
    file = session.registry.root.parent / HISTORY
    with contextlib.suppress(OSError):
        _create(file)
    return PromptSession(
        _PROMPT,
        multiline=True,
        prompt_continuation=_CONTINUED,
        history=FileHistory(file) if os.access(file, os.W_OK) else None,
        completer=_completer(catalogue_of(session)),
        complete_in_thread=False,
        complete_while_typing=False,
        key_bindings=_keys(),
        interrupt_exception=_DroppedError,
    )


def _create(file: Path) -> None:
    """Create the history, which only the user reads."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(file, os.O_CREAT | os.O_APPEND, 0o600))


def _keys() -> KeyBindings:
    """Enter runs a complete statement, and else begins a line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("enter")
    def enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def is_complete(text: str) -> bool:
    """Whether a text is run when the user presses Enter."""
    stripped = text.strip()
    return not stripped or stripped.endswith(";") or stripped.lower() in (*_END, "help", "?", r"\?")


def _completer(catalogue: Catalogue) -> Completer:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Names(Completer):
        """See ``completions``."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            del complete_event
            with contextlib.suppress(ElasticDLError):  # A database that can't be reached completes nothing.
                found, length = completions(document.text_before_cursor, catalogue)
                for each in found:
                    yield Completion(each, start_position=-length)

    return Names()


def catalogue_of(session: Session) -> Catalogue:
    """The names that statements of a session can have."""
    from elasticdl.sql.columns.functions import FUNCTIONS
    from elasticdl.sql.network.catalogue import NETWORKS, arguments_of

    databases = session.databases

    def columns(tables: Sequence[str]) -> list[str]:
        return [name for table in tables for name in databases.columns(table)]

    return Catalogue(
        tables=databases.tables,
        columns=columns,
        models=session.registry.names,
        networks={name: list(arguments_of(name)) for name in NETWORKS},
        functions=list(FUNCTIONS),
    )
