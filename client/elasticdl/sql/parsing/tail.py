"""Finds where the clauses of ElasticDL begin: the SELECT before them is any that the database understands.

They begin at ``TO TRAIN`` and its like, or, in the short form, at the first LABEL, WITH, COLUMN, USING or INTO that
stands where no SELECT can have it. So columns may have these names: ``SELECT label FROM t LABEL label INTO m``.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.words import listed, similar
from elasticdl.sql.parsing.tokens import Kind, Token

CLAUSES = ("WITH", "COLUMN", "LABEL", "USING", "INTO")
VERBS = ("TRAIN", "PREDICT", "EVALUATE", "EXPLAIN")
REFUSED_VERBS = ("RUN", "MAXIMIZE", "MINIMIZE")
_SELECT_WORDS = frozenset(
    listed(
        "ALL,AND,AS,ASC,BETWEEN,BY,CASE,CROSS,DESC,DISTINCT,ELSE,END,EXCEPT,FETCH,FILTER,FROM,FULL,GROUP,HAVING,IN,INNER,"
        "INTERSECT,IS,JOIN,LATERAL,LEFT,LIKE,LIMIT,NATURAL,NOT,NULLS,OFFSET,ON,OR,ORDER,OUTER,OVER,PARTITION,QUALIFY,"
        "RIGHT,ROWS,SELECT,SET,TABLESAMPLE,THEN,UNION,VALUES,WHEN,WHERE,WINDOW"
    )
)
_NO_OPERANDS = _SELECT_WORDS - {"ASC", "DESC", "END", "ALL"}
"""After these words of a SELECT an expression or a table has to follow: no clause begins there."""
_WITH_OF_SELECT = frozenset(("ORDINALITY", "TIES", "TIME", "LOCAL", "RECURSIVE", "OFFSET", "NO"))


def find_tail(tokens: Sequence[Token]) -> int:
    """Index of the first token of the clauses; that of END if there are none.

    Args:
        tokens: those of one statement, and an END.
    """
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind is Kind.SIGN:
            depth += (token.text in "([{") - (token.text in ")]}" and depth > 0)
        elif at and depth == 0 and token.kind is Kind.WORD and _begins(tokens, at):
            return at
    return len(tokens) - 1


def _begins(tokens: Sequence[Token], at: int) -> bool:
    word, after = tokens[at].word, tokens[at + 1]
    if word not in (*CLAUSES, "TO") or not _ends_operand(tokens[at - 1]):
        return False
    following = tokens[at + 2 : at + 3] or [tokens[-1]]
    match word:
        case "TO":
            return after.word in (*VERBS, *REFUSED_VERBS) or bool(similar(after.word, VERBS, 0.7))
        case "WITH":
            is_attribute = after.kind is Kind.WORD and after.word not in _WITH_OF_SELECT | _SELECT_WORDS
            return is_attribute and following[0].text not in ("(",) and following[0].word != "AS"
        case "COLUMN":
            return _is_name(after) or after.is_sign("*")
        case "LABEL":
            return _is_name(after) and _ends_name(following[0])
        case "USING":
            return _is_name(after) and after.word != "SAMPLE"
        case _:
            return _is_name(after) and _name_ends_clause(tokens, at + 1)


def _ends_operand(token: Token) -> bool:
    if token.kind is Kind.WORD:
        return token.word not in _NO_OPERANDS
    return token.kind is not Kind.SIGN or token.text in ")]}*?"


def _is_name(token: Token) -> bool:
    if token.kind is Kind.WORD:
        return token.word not in _SELECT_WORDS and (token.word not in CLAUSES or token.word == "LABEL")
    return token.kind in (Kind.QUOTED, Kind.STRING)


def _ends_name(token: Token) -> bool:
    """Whether the name of a label may end before this token. ``(`` is that of an expression, which is refused later."""
    if token.kind is Kind.WORD:
        return token.word not in _SELECT_WORDS
    return token.kind is Kind.END or (token.kind is Kind.SIGN and token.text in ",.(")


def _name_ends_clause(tokens: Sequence[Token], at: int) -> bool:
    """Whether a clause, or nothing, follows the name at this place: else it is the INTO of a SELECT."""
    while tokens[at + 1].kind is not Kind.END and tokens[at + 1].start == tokens[at].end:
        at += 1
    return tokens[at + 1].word in (*CLAUSES, "TO") or tokens[at + 1].kind is Kind.END
