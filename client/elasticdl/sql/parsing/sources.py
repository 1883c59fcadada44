"""Finds the tables that a SELECT names, by its tokens alone: each database has its own dialect of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elasticdl.shared.words import listed
from elasticdl.sql.parsing.tokens import Kind, Token

_AFTER_FROM = frozenset(
    listed("EXCEPT,FETCH,GROUP,HAVING,INTERSECT,LIMIT,OFFSET,ORDER,QUALIFY,SELECT,UNION,WHERE,WINDOW")
)
"""Words that end the list of tables after FROM."""


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table in a SELECT: its name without quotes, and where it stands in the text. It may be a common expression."""

    name: str
    start: int
    end: int


def named_tables(tokens: Sequence[Token]) -> Iterator[NamedTable]:
    """The tables after FROM, JOIN and the commas between them, in the order of the text.

    Args:
        tokens: of a whole query, or of one that is being written.
    """
    depths = [False]
    """Of each open parenthesis, whether a list of tables is read."""
    for at, token in enumerate(tokens):
        begins = token.word in ("FROM", "JOIN")
        if begins:
            depths[-1] = True
        elif token.word in _AFTER_FROM:
            depths[-1] = False
        elif token.is_sign("("):
            before = tokens[at - 1] if at else token
            begins = depths[-1] and (before.word in ("FROM", "JOIN") or before.is_sign(",") or before.is_sign("("))
            depths.append(begins)
        elif token.is_sign(")") and len(depths) > 1:
            depths.pop()
        elif token.is_sign(","):
            begins = depths[-1]
        if begins and (found := _name(tokens, at + 1)):
            yield found


def _name(tokens: Sequence[Token], at: int) -> NamedTable | None:
    if at >= len(tokens) or tokens[at].kind not in (Kind.WORD, Kind.QUOTED):
        return None
    if tokens[at].word in _AFTER_FROM or not tokens[at].text:
        return None
    first = last = tokens[at]
    name = first.text
    while at + 2 < len(tokens) and tokens[at + 1].is_sign(".") and tokens[at + 1].start == last.end:
        at += 2
        if tokens[at].kind not in (Kind.WORD, Kind.QUOTED):
            break
        last = tokens[at]
        name = f"{name}.{last.text}"
    return NamedTable(name, first.start, last.end)
