"""Discouraged words stay out of what users and developers read: messages, docstrings, comments and documentation.

Sentences name the subject ("the master", not "somebody") and use modern words, where possible those of Keras and NATS.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("shared", "client", "services", "model_zoo", "website", "benchmarks")

DISCOURAGED: Mapping[str, str] = {
    r"anew": "again",
    r"(?:mend|mends|mended)": "fix, correct",
    r"(?:heed|heeds|heeded)": "follow",
    r"forthwith": "immediately",
    r"(?:thaw|thaws|thawed)": "continue, resume",
    r"in hand|in (?:its|their) hands": "in progress, running",
    r"goes on|went on|going on": "continues",
    r"given back|gives back": "returned",
    r"without a word": "unexpectedly",
    r"come to this": "say what the state is",
    r"(?:keeper|keepers)": "process adapter, launcher",
    r"somebody|someone|anybody": "name the subject",
    r"whoever|whomever": "name the subject",
    r"nobody|no one": "name the subject: no process, no worker",
    r"heard of": "received a heartbeat from",
    r"as often as it takes": "until it succeeds",
    r"(?:goodbye|farewell)": "say what is sent",
    r"(?:its|former|young|next|dead) (?:life|lives)": "instance, incarnation",
    r"(?:mishap|mishaps)": "incident",
    r"ill-treated": "damaged, stopped",
}
"""Pattern -> what to write instead."""

WORDS = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in DISCOURAGED), re.IGNORECASE)


def passages_of(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every comment and string of a module."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def discouraged_in(path: Path) -> list[str]:
    """Where a file uses discouraged words."""
    text = path.read_text()
    passages = passages_of(text) if path.suffix == ".py" else enumerate(text.splitlines(), start=1)
    name = path.relative_to(ROOT)
    return [
        f"{name}:{line}: {found.group()!r} in {text[:80]!r}"
        for line, text in passages
        for found in WORDS.finditer(text)
    ]


def files() -> list[Path]:
    """Modules of the package and Markdown files for users and developers."""
    modules = [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if not path.name.endswith("_pb2.py")
    ]
    return sorted([*modules, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_readers_find_no_discouraged_words() -> None:
    checked = files()
    assert len(checked) > 100
    assert [place for path in checked for place in discouraged_in(path)] == []


@pytest.mark.parametrize(
    "phrase", ["it is made anew", "Whoever asks", "worker-0 has not been heard of", "its next life"]
)
def test_discouraged_words_are_found(phrase: str) -> None:
    assert WORDS.search(phrase)


def test_comments_docstrings_and_messages_are_found() -> None:
    source = '"""One, anew."""\nanew = 1  # two, anew\nraise ValueError(f"train {1} anew")\n'
    assert sorted(text for _, text in passages_of(source) if WORDS.search(text)) == [
        " anew",
        "# two, anew",
        "One, anew.",
    ]
