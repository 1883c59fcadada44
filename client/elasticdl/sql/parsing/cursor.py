"""Reads tokens one after the other, and collects what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticdl.sql.parsing.tokens import Kind, Text, Token
from elasticdl.sql.statements import Fault, ModelName, Name, Position


class ClauseError(Exception):
    """A clause can't be read any further; the fault is recorded. The parser continues with the next clause."""


class Cursor:
    """A place among the tokens of one statement.

    Args:
        tokens: those of the statement, and an END.
    """

    def __init__(self, tokens: Sequence[Token], script: Text) -> None:
        self.tokens, self.script = tokens, script
        self.at = 0
        self.faults: list[Fault] = []

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def ahead(self, number: int = 1) -> Token:
        """A token after the next one; END after the last."""
        return self.tokens[min(self.at + number, len(self.tokens) - 1)]

    def take(self) -> Token:
        """The next token, which is behind the cursor then."""
        token = self.token
        if token.kind is not Kind.END:
            self.at += 1
        return token

    def skip_word(self, *words: str) -> bool:
        """Take the next token if it is one of these words."""
        found = self.token.word in words
        self.at += found
        return found

    def skip_sign(self, sign: str) -> bool:
        """Take the next token if it is this sign."""
        found = self.token.is_sign(sign)
        self.at += found
        return found

    def position(self, token: Token | None = None) -> Position:
        """Where a token begins: the next one if none is given."""
        return self.script.position((token or self.token).start)

    def fault(self, message: str, token: Token | None = None, hint: str = "", *, length: int = 0) -> None:
        """Record what is wrong with a token: the next one if none is given."""
        token = token or self.token
        self.faults.append(Fault(message, self.position(token), length or max(1, token.end - token.start), hint))

    def fail(self, message: str, token: Token | None = None, hint: str = "") -> ClauseError:
        """As ``fault``; returns what to raise."""
        self.fault(message, token, hint)
        return ClauseError(message)

    def shown(self, token: Token | None = None) -> str:
        """A token in messages."""
        token = token or self.token
        text = self.script.text[token.start : token.end]
        return "the statement ends here" if token.kind is Kind.END else f"this is {text[:40]!r}"

    def expect_sign(self, sign: str, after: str) -> Token:
        """Take a sign that has to come."""
        if not self.token.is_sign(sign):
            raise self.fail(f"{sign!r} is missing after {after}: {self.shown()}.")
        return self.take()

    def column_name(self, what: str, stops: Iterable[str] = ()) -> Name:
        """A column: a word, or a name or string in quotes."""
        token = self.token
        is_name = token.kind in (Kind.QUOTED, Kind.STRING) or (token.kind is Kind.WORD and token.word not in stops)
        if not is_name or not token.text:
            raise self.fail(f"{what} is missing: {self.shown()}.")
        self.take()
        return Name(token.text, self.position(token))

    def spaceless(self, what: str, stops: Iterable[str] = (), *, until: str = ",;()[]=") -> Name:
        """A name that may have dots, dashes, slashes and colons, as the names of models and files do.

        Quotes around it, or around its parts (``"my zoo"."my net"``), are left out.
        """
        first = self.token
        if (
            first.kind in (Kind.END, Kind.NUMBER)
            or first.word in stops
            or (first.kind is Kind.SIGN and first.text not in "./~")
        ):
            raise self.fail(f"{what} is missing: {self.shown()}.")
        parts = []
        end = first.start
        while self.token.kind is not Kind.END and self.token.start == end:
            if self.token.kind is Kind.SIGN and self.token.text in until:
                break
            end = self.token.end
            parts.append(self.take().text)
        if not any(parts):
            raise self.fail(f"{what} is empty.", first)
        return Name("".join(parts), self.position(first))

    def model_name(self, what: str, stops: Iterable[str] = ()) -> ModelName:
        """``name``, ``name@3``, or a folder."""
        first = self.token
        name = self.spaceless(what, stops)
        if first.kind is Kind.STRING:
            return ModelName(name)
        text, at, version = name.text.rpartition("@")
        if not at:
            return ModelName(name)
        if not (version.isascii() and version.isdecimal() and 0 < len(version) < 10 and int(version) and text):
            raise self.fail(f"{name.text!r} names no version of a model.", first, "Write name@3, or only the name.")
        return ModelName(Name(text, name.position), int(version))
