"""Splits a script into tokens, by the rules that Postgres, DuckDB and SQLite share.

sqlglot's tokenizer would be a library for this, but its import takes twice as long as a whole ``SHOW MODELS``, and it
needs to know the database first.
"""

from __future__ import annotations

import bisect
import enum
import re
from dataclasses import dataclass

from elasticdl.sql.statements import Fault, Position, StatementError

SCRIPT_CHARS_MAX = 1 << 20
_NO_UNICODE = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes that are not UTF-8."""
_COMMENT = re.compile(r"/\*|\*/")


class Kind(enum.Enum):
    """What a token is. A QUOTED name is in double quotes or backquotes, a STRING in single quotes or dollars."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; ``text`` is without quotes, ``end`` the offset after its last character."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """In upper case if it is a word, else empty."""
        return self.text.upper() if self.kind is Kind.WORD else ""

    def is_sign(self, sign: str) -> bool:
        """Whether it is this sign."""
        return self.kind is Kind.SIGN and self.text == sign


_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
  | (?P<comment>/\*)
  | (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*(?P<escaped_end>')?)
  | (?P<string>'(?:[^']|'')*(?P<string_end>')?)
  | (?P<quoted>"(?:[^"]|"")*(?P<quoted_end>")?)
  | (?P<back>`(?:[^`]|``)*(?P<back_end>`)?)
  | (?P<dollar>\$(?P<tag>[^\W\d]\w*)?\$)
  | (?P<number>(?:\d+(?:\.\d+|\.(?![.\w]))?|\.\d+)(?:[eE][+-]?\d+)?(?![^\W\d_]))
  | (?P<word>\w[\w$]*)
  | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Text:
    """A script, and where its lines begin."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def position(self, offset: int) -> Position:
        """Line and column of a character."""
        line = bisect.bisect_right(self._starts, offset)
        return Position(line, offset - self._starts[line - 1] + 1, offset)

    def line(self, number: int) -> str:
        """One line without its end; lines count from 1."""
        start = self._starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")


def tokenize(script: Text) -> list[Token]:
    """All tokens, without spaces and comments, and an END.

    Raises:
        StatementError: a string, a quoted name or a comment has no end, or the script is too long or no UTF-8.
    """
    text = script.text
    if len(text) > SCRIPT_CHARS_MAX:
        message = f"the script has {len(text):,} characters; the limit is {SCRIPT_CHARS_MAX:,}."
        raise StatementError([Fault(message, script.position(0))])
    if wrong := _NO_UNICODE.search(text):
        raise StatementError([Fault("this is not UTF-8.", script.position(wrong.start()))])
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        end = match.end()
        group = next(name for name in _GROUPS if match[name] is not None)
        if group == "comment":
            end = _comment_end(text, at)
        elif group == "dollar":
            end = _dollar_end(text, at, match[group])
        elif group in _QUOTES and match[f"{group}_end"] is None:
            end = -1
        if end < 0:
            what = "comment" if group == "comment" else "quoted name" if group in ("quoted", "back") else "string"
            opening = match[group] if group in ("comment", "dollar") else match[group].lstrip("eE")[0]
            message = f"this {what} has no end: {opening} is never closed."
            raise StatementError([Fault(message, script.position(at), len(opening))])
        if group not in ("space", "comment"):
            tokens.append(_token(group, text, at, end, match[group]))
        at = end
    return [*tokens, Token(Kind.END, "", len(text), len(text))]


_QUOTES = ("escaped", "string", "quoted", "back")
_GROUPS = ("space", "comment", *_QUOTES, "dollar", "number", "word", "sign")


def _token(group: str, text: str, start: int, end: int, found: str) -> Token:
    match group:
        case "escaped":
            inner = re.sub(r"\\(.)|''", lambda each: _ESCAPES.get(each[1], each[1]) if each[1] else "'", found[2:-1])
            return Token(Kind.STRING, inner, start, end)
        case "string":
            return Token(Kind.STRING, found[1:-1].replace("''", "'"), start, end)
        case "quoted":
            return Token(Kind.QUOTED, found[1:-1].replace('""', '"'), start, end)
        case "back":
            return Token(Kind.QUOTED, found[1:-1].replace("``", "`"), start, end)
        case "dollar":
            return Token(Kind.STRING, text[start + len(found) : end - len(found)], start, end)
        case "number":
            return Token(Kind.NUMBER, found, start, end)
        case "word":
            return Token(Kind.WORD, found, start, end)
        case _:
            return Token(Kind.SIGN, found, start, end)


def _comment_end(text: str, start: int) -> int:
    """Where a comment ends, which may have comments in it; -1: nowhere."""
    depth = 0
    for match in _COMMENT.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return -1


def _dollar_end(text: str, start: int, delimiter: str) -> int:
    end = text.find(delimiter, start + len(delimiter))
    return end + len(delimiter) if end >= 0 else -1
