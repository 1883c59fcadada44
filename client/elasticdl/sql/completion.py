"""What can follow in a statement that is being written: names of tables, columns, models, attributes and functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from elasticdl.sql.attributes import MODEL, TRAIN, attribute_table
from elasticdl.sql.parsing.sources import named_tables
from elasticdl.sql.parsing.tail import CLAUSES, VERBS
from elasticdl.sql.parsing.tokens import Text, Token, tokenize
from elasticdl.sql.statements import StatementError

_PREFIX = re.compile(r"[\w.]*$")
_STARTS = (
    "SELECT", "WITH", "FROM", "SHOW MODELS", "SHOW TABLES", "SHOW TRAIN", "DESCRIBE", "DROP MODEL", "EXPLAIN PLAN",
)  # fmt: skip
_AFTER_TABLE = ("WHERE", "JOIN", "GROUP BY", "ORDER BY", "LIMIT", "TO", *CLAUSES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Names that a statement can have.

    Attributes:
        columns: of the tables that are given.
        networks: name -> its arguments.
    """

    tables: Callable[[], Iterable[str]]
    columns: Callable[[Sequence[str]], Iterable[str]]
    models: Callable[[], Iterable[str]]
    networks: Mapping[str, Iterable[str]]
    functions: Iterable[str]


def completions(text: str, catalogue: Catalogue) -> tuple[list[str], int]:
    """What can follow a text, sorted, and how many of its last characters that replaces."""
    match = _PREFIX.search(text)
    prefix = match[0] if match else ""
    tokens = _tokens(text[: len(text) - len(prefix)])
    if tokens is None:
        return [], 0
    found = {each for each in _following(tokens, catalogue) if each.casefold().startswith(prefix.casefold())}
    return sorted(found - {prefix}), len(prefix)


def _tokens(text: str) -> list[Token] | None:
    """The tokens of the last statement; None: the text ends within a string or a comment."""
    try:
        tokens = tokenize(Text(text))[:-1]
    except StatementError:
        return None
    ends = [at for at, token in enumerate(tokens) if token.is_sign(";")]
    return tokens[ends[-1] + 1 :] if ends else tokens


def _following(tokens: Sequence[Token], catalogue: Catalogue) -> Iterable[str]:
    if not tokens:
        return _STARTS
    words = [token.word for token in tokens]
    last = words[-1]
    before = words[-2] if len(words) > 1 else ""
    if last in ("FROM", "JOIN", "INTO", "PREDICT"):
        return catalogue.tables()
    if last == "SHOW":
        return "MODELS", "TABLES", "TRAIN"
    if last in ("DROP", "EXPLAIN") and before != "TO":
        return ("MODEL",) if last == "DROP" else ("PLAN",)
    if last == "DESCRIBE":
        return ["MODEL", *catalogue.tables()]
    if last == "TO":
        return VERBS
    if last == "TRAIN":
        return catalogue.networks if before == "TO" else catalogue.models()
    if last in ("EVALUATE", "EXPLAIN", "MODEL", "USING"):
        return catalogue.models()
    return _in_clause(tokens, words, catalogue)


def _in_clause(tokens: Sequence[Token], words: Sequence[str], catalogue: Catalogue) -> Iterable[str]:
    """What can follow within the last clause."""
    clause = next((word for word in reversed(words) if word in (*CLAUSES, *VERBS, "SELECT", "FROM", "WHERE", "BY")), "")
    columns = catalogue.columns([table.name for table in named_tables(tokens)])
    is_open = tokens[-1].is_sign(",") or tokens[-1].is_sign("(") or words[-1] == clause
    match clause:
        case "WITH" if is_open:
            return _attributes(words, tokens, catalogue)
        case "COLUMN" if is_open:
            return [*columns, *catalogue.functions]
        case "LABEL" if is_open:
            return columns
        case "SELECT":
            return [*columns, "FROM", "AS", "DISTINCT"]
        case "WHERE" | "BY":
            return [*columns, "AND", "OR", "NOT", *_AFTER_TABLE]
        case "FROM":
            return _AFTER_TABLE
    return CLAUSES


def _attributes(words: Sequence[str], tokens: Sequence[Token], catalogue: Catalogue) -> Iterable[str]:
    verb = next((word for word in reversed(words) if word in VERBS), TRAIN)
    known = list(attribute_table(verb))
    if verb != TRAIN:
        return known
    at = next((at for at, word in enumerate(words) if word == TRAIN), -1)
    named = tokens[at + 1].text if 0 <= at < len(tokens) - 1 else ""
    arguments = catalogue.networks.get(named) or {each for names in catalogue.networks.values() for each in names}
    return [*known, *(MODEL + each for each in arguments)]
