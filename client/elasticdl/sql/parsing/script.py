"""A script: statements with semicolons between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.shared.words import listed, similar
from elasticdl.sql.parsing.clauses import read_clauses
from elasticdl.sql.parsing.cursor import ClauseError, Cursor
from elasticdl.sql.parsing.misspelled import report_misspelled
from elasticdl.sql.parsing.tail import find_tail
from elasticdl.sql.parsing.tokens import Kind, Text, Token, tokenize
from elasticdl.sql.statements import (
    START,
    DescribeModel,
    DescribeTable,
    DropModel,
    ExplainPlan,
    Fault,
    Position,
    Query,
    Select,
    ShowModels,
    ShowTables,
    ShowTrain,
    Statement,
    StatementError,
)

STATEMENTS_MAX = 10_000
_QUERIES = ("SELECT", "WITH", "FROM", "VALUES", "TABLE")
_COMMANDS = (*_QUERIES, "SHOW", "DESCRIBE", "DROP", "EXPLAIN")
_WRITING = frozenset(
    listed(
        "INSERT,UPDATE,DELETE,MERGE,REPLACE,CREATE,ALTER,TRUNCATE,GRANT,REVOKE,COPY,EXPORT,IMPORT,ATTACH,DETACH,INSTALL,"
        "LOAD,PRAGMA,SET,RESET,CALL,DO,EXECUTE,PREPARE,BEGIN,COMMIT,ROLLBACK,VACUUM,ANALYZE,CHECKPOINT,USE,LOCK,LISTEN"
    )
)


@dataclass(frozen=True, slots=True)
class ParsedStatement:
    """A statement and its text, without the semicolon."""

    statement: Statement
    text: str
    position: Position = START


def parse(text: str) -> tuple[ParsedStatement, ...]:
    """All statements of a script. Empty ones and comments are left out.

    Raises:
        StatementError: with all that is wrong with any of them.
    """
    script = Text(text)
    parts = _split(tokenize(script))
    if len(parts) > STATEMENTS_MAX:
        message = f"the script has more than {STATEMENTS_MAX:,} statements."
        raise StatementError([Fault(message, script.position(parts[STATEMENTS_MAX][0].start))])
    found: list[ParsedStatement] = []
    faults: list[Fault] = []
    for tokens in parts:
        cursor = Cursor(tokens, script)
        try:
            statement = _statement(cursor)
        except ClauseError:
            statement = None
        faults += cursor.faults
        if statement is not None:
            start, end = tokens[0].start, tokens[-2].end
            found.append(ParsedStatement(statement, text[start:end], script.position(start)))
    if faults:
        raise StatementError(faults)
    return tuple(found)


def parse_one(text: str) -> ParsedStatement:
    """The only statement of a text.

    Raises:
        StatementError: it is wrong, or there are none or several.
    """
    found = parse(text)
    if len(found) != 1:
        message = "there is no statement." if not found else "one statement is expected, and another one follows."
        raise StatementError([Fault(message, found[1].position if found else START)])
    return found[0]


def _split(tokens: Sequence[Token]) -> list[list[Token]]:
    """The tokens of each statement that has any, each with an END."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.is_sign(";"):
            parts[-1].append(Token(Kind.END, "", token.start, token.start))
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if len(part) > 1]


def _statement(cursor: Cursor) -> Statement | None:
    first = cursor.token
    match first.word:
        case "SHOW":
            cursor.take()
            return _show(cursor)
        case "DESCRIBE" | "DESC":
            cursor.take()
            if cursor.token.word == "MODEL" and cursor.ahead().kind is not Kind.END:
                cursor.take()
                return _last(cursor, DescribeModel(cursor.model_name("the model")))
            return _last(cursor, DescribeTable(cursor.spaceless("the table")))
        case "DROP":
            cursor.take()
            if cursor.token.word != "MODEL":
                raise cursor.fail("only models can be dropped: DROP MODEL name, or DROP MODEL name@3.")
            cursor.take()
            return _last(cursor, DropModel(cursor.model_name("the model")))
        case "EXPLAIN":
            return _explain_plan(cursor)
    if first.word in _QUERIES or first.is_sign("("):
        return _query(cursor)
    shown = cursor.script.text[first.start : first.end][:40]
    if first.word in _WRITING:
        raise cursor.fail(
            f"{shown} is not available here: statements read the database.",
            hint="Tables are written by TO PREDICT, TO EVALUATE and TO EXPLAIN.",
        )
    meant = similar(first.word, _COMMANDS)
    raise cursor.fail(
        f"no statement begins with {shown!r}.",
        hint=f"Did you mean {meant}?" if meant else f"Statements begin with {', '.join(_COMMANDS)}.",
    )


def _show(cursor: Cursor) -> Statement:
    token = cursor.take()
    match token.word:
        case "MODELS":
            return _last(cursor, ShowModels())
        case "TABLES":
            return _last(cursor, ShowTables())
        case "TRAIN":
            return _last(cursor, ShowTrain(cursor.model_name("the model")))
    known = ("MODELS", "TABLES", "TRAIN")
    meant = similar(token.word, known)
    hint = f"Did you mean SHOW {meant}?" if meant else "There are SHOW MODELS, SHOW TABLES and SHOW TRAIN model."
    raise cursor.fail(f"SHOW {token.text} is unknown.".replace("  ", " "), token, hint)


def _explain_plan(cursor: Cursor) -> Statement | None:
    cursor.take()
    if not cursor.skip_word("PLAN"):
        raise cursor.fail(
            f"PLAN is missing after EXPLAIN: {cursor.shown()}.",
            hint="EXPLAIN PLAN SELECT ... shows what a statement would do; SELECT ... TO EXPLAIN m explains a model.",
        )
    if cursor.token.word not in _QUERIES and not cursor.token.is_sign("("):
        raise cursor.fail(f"a SELECT is missing after EXPLAIN PLAN: {cursor.shown()}.")
    statement = _query(cursor)
    if isinstance(statement, Select):
        raise cursor.fail("EXPLAIN PLAN takes a statement with TO TRAIN, TO PREDICT, TO EVALUATE or TO EXPLAIN.")
    return ExplainPlan(statement) if statement else None  # type: ignore[arg-type]


def _query(cursor: Cursor) -> Statement | None:
    start = cursor.at
    tokens = cursor.tokens[start:]
    tail = start + find_tail(tokens)
    end = cursor.tokens[tail - 1].end
    query = Query(cursor.script.text[cursor.token.start : end], cursor.position())
    cursor.at = tail
    if cursor.token.kind is Kind.END:
        report_misspelled(cursor, start, tail, is_select=True)
        return Select(query) if not cursor.faults else None
    statement = read_clauses(cursor, query)
    report_misspelled(cursor, start, tail, is_select=False)
    return statement if not cursor.faults else None


def _last(cursor: Cursor, statement: Statement) -> Statement:
    """The statement, after which nothing may follow."""
    if cursor.token.kind is not Kind.END:
        cursor.fault("the statement has ended here.", hint="Put a semicolon between statements.")
    return statement
