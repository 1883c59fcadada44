"""Finds a misspelled clause that was taken for a part of the SELECT: ``SELECT * FROM t LABLE income INTO m``."""

from __future__ import annotations

from elasticdl.shared.words import similar
from elasticdl.sql.parsing.cursor import Cursor
from elasticdl.sql.parsing.tail import CLAUSES, VERBS
from elasticdl.sql.parsing.tokens import Kind
from elasticdl.sql.statements import Fault

_CUTOFF = 0.74


def report_misspelled(cursor: Cursor, start: int, end: int, *, is_select: bool) -> None:
    """Record a word among the last of a SELECT that is almost LABEL, COLUMN or TO TRAIN.

    Args:
        start, end: the tokens of the SELECT.
        is_select: nothing but the SELECT was found: a word counts only if it is almost a clause and a name follows, and
            then the end.
    """
    tokens = cursor.tokens
    for at in range(start + 1, end):
        token = tokens[at]
        if token.kind is not Kind.WORD or tokens[at + 1].kind not in (Kind.WORD, Kind.QUOTED):
            continue
        if tokens[at - 1].kind is not Kind.WORD or tokens[at - 1].word in ("SELECT", "AS", "BY", "FROM", "WHERE"):
            continue
        if token.word in VERBS and not is_select:
            meant = f"TO {token.word}"
        elif token.word in CLAUSES or len(token.text) < 4:
            continue
        else:
            meant = similar(token.word, ("LABEL", "COLUMN"), _CUTOFF)
        is_last = at + 2 >= end
        if meant and (is_last or not is_select):
            message = f"{token.text!r} is not a keyword here."
            fault = Fault(message, cursor.position(token), len(token.text), f"Did you mean {meant}?")
            cursor.faults = [fault, *_without_missing(cursor.faults, meant)]
            return


def _without_missing(faults: list[Fault], clause: str) -> list[Fault]:
    """Without the fault that this clause is missing: it is misspelled."""
    return [fault for fault in faults if not fault.message.startswith(f"{clause} is missing")]
