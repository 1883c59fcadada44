"""Values of WITH attributes and the expressions of COLUMN."""

from __future__ import annotations

from collections.abc import Iterator

from elasticdl.sql.parsing.cursor import Cursor
from elasticdl.sql.parsing.tokens import Kind, Token
from elasticdl.sql.statements import Attribute, Call, Expression, Literal, Name, Pattern, Star, Value

DEPTH_MAX = 16
"""Functions in functions, and lists in lists."""
_WORDS = {"TRUE": True, "FALSE": False, "NULL": None}
_CLOSING = {"[": "]", "(": ")"}


def attribute(cursor: Cursor, stops: frozenset[str]) -> Attribute:
    """``name.name = value``."""
    name = cursor.spaceless("the name of an attribute", stops)
    cursor.expect_sign("=", f"the attribute {name.text}")
    at = cursor.position()
    return Attribute(name, value(cursor, f"the value of {name.text}", stops), at)


def value(cursor: Cursor, what: str, stops: frozenset[str] = frozenset(), depth: int = 0) -> Value:
    """A number, a string in either quotes, true, false, null, a word, or a list of them."""
    token = cursor.token
    if token.kind in (Kind.STRING, Kind.QUOTED):
        return cursor.take().text
    if token.kind is Kind.NUMBER or (token.text in ("-", "+") and cursor.ahead().kind is Kind.NUMBER):
        return number(cursor)
    if token.text in _CLOSING and token.kind is Kind.SIGN:
        return tuple(_listed(cursor, what, depth))
    if token.word in _WORDS:
        cursor.take()
        return _WORDS[token.word]
    if token.kind is not Kind.WORD or token.word in stops:
        raise cursor.fail(f"{what} is missing: {cursor.shown()}.")
    if cursor.ahead().is_sign("(") and cursor.ahead().start == token.end:
        raise cursor.fail(
            f"{what} is a call of {token.text}; values are constants.", hint="Give a number, a string or a list."
        )
    return cursor.spaceless(what).text


def _listed(cursor: Cursor, what: str, depth: int) -> Iterator[Value]:
    opening = cursor.take()
    if depth >= DEPTH_MAX:
        raise cursor.fail(f"{what} has lists nested more than {DEPTH_MAX} deep.", opening)
    closing = _CLOSING[opening.text]
    while not cursor.skip_sign(closing):
        yield value(cursor, what, depth=depth + 1)
        _separator(cursor, closing, opening)


def number(cursor: Cursor) -> int | float:
    """A number with its sign. One with a point or an exponent is a float."""
    sign = cursor.take().text if cursor.token.kind is Kind.SIGN else ""
    token = cursor.take()
    if token.text.isdecimal():
        if len(token.text) > 30:
            raise cursor.fail("this number has more than 30 digits.", token)
        return int(sign + token.text)
    return float(sign + token.text)


def expression(cursor: Cursor, stops: frozenset[str]) -> Expression:
    """One item of COLUMN: a name, a regular expression, ``*``, or a function of them."""
    token = cursor.token
    if token.kind is Kind.STRING and token.text:
        cursor.take()
        return Pattern(token.text, cursor.position(token))
    return _expression(cursor, stops, 0)


def _expression(cursor: Cursor, stops: frozenset[str], depth: int) -> Expression:
    token = cursor.token
    if cursor.skip_sign("*"):
        return Star(cursor.position(token))
    name = cursor.column_name("a column", stops)
    if cursor.token.is_sign("."):
        raise cursor.fail(
            f"{name.text!r} is a table or the start of a name with a dot.",
            token,
            "Give the column as the SELECT names it, or the whole name in double quotes.",
        )
    if token.kind is not Kind.WORD or not cursor.skip_sign("("):
        return name
    if depth >= DEPTH_MAX:
        raise cursor.fail(f"functions are nested more than {DEPTH_MAX} deep.", token)
    return _call(cursor, name, depth)


def _call(cursor: Cursor, function: Name, depth: int) -> Call:
    """The arguments of a function, after its opening parenthesis."""
    opening = cursor.tokens[cursor.at - 1]
    arguments: list[Expression] = []
    keywords: list[tuple[Name, Expression]] = []
    while not cursor.skip_sign(")"):
        token = cursor.token
        if token.kind is Kind.WORD and cursor.ahead().is_sign("="):
            name = Name(cursor.take().text, cursor.position(token))
            cursor.take()
            keywords.append((name, _only(_argument(cursor, False, depth), cursor, token)))
        elif keywords:
            raise cursor.fail(f"an argument without a name follows {keywords[-1][0].text}=.")
        else:
            arguments += _argument(cursor, not arguments, depth)
        _separator(cursor, ")", opening)
    upper = Name(function.text.upper(), function.position)
    return Call(upper, tuple(arguments), tuple(keywords))


def _argument(cursor: Cursor, is_first: bool, depth: int) -> list[Expression]:
    """One argument; a list of columns is several."""
    token, at = cursor.token, cursor.position()
    if token.kind is Kind.STRING:
        cursor.take()
        return [Pattern(token.text, at) if is_first else Literal(token.text, at)]
    if token.is_sign("["):
        return _list(cursor, depth)
    is_number = token.kind is Kind.NUMBER or (token.text in ("-", "+") and token.kind is Kind.SIGN)
    if is_number or token.word in _WORDS:
        return [Literal(value(cursor, "an argument"), at)]
    return [_expression(cursor, frozenset(), depth + 1)]


def _list(cursor: Cursor, depth: int) -> list[Expression]:
    """A list of constants is one literal, a list of columns are these columns."""
    opening, at = cursor.take(), cursor.position(cursor.tokens[cursor.at - 1])
    if depth >= DEPTH_MAX:
        raise cursor.fail(f"lists are nested more than {DEPTH_MAX} deep.", opening)
    found: list[Expression] = []
    while not cursor.skip_sign("]"):
        found += _argument(cursor, False, depth + 1)
        _separator(cursor, "]", opening)
    literals = [each.value for each in found if isinstance(each, Literal)]
    if len(literals) == len(found):
        return [Literal(tuple(literals), at)]
    return [Name(str(each.value), each.position) if isinstance(each, Literal) else each for each in found]


def _only(found: list[Expression], cursor: Cursor, token: Token) -> Expression:
    if len(found) != 1:
        raise cursor.fail(f"{token.text} takes one value.", token)
    return found[0]


def _separator(cursor: Cursor, closing: str, opening: Token) -> None:
    """A comma, or the end of the list, which is not taken."""
    if cursor.token.is_sign(closing) or cursor.skip_sign(","):
        return
    if cursor.token.kind is Kind.END:
        raise cursor.fail(f"{opening.text!r} is never closed: {closing!r} is missing.", opening)
    raise cursor.fail(f"',' or {closing!r} is missing: {cursor.shown()}.")
