"""Every ``elasticdl`` command in the documentation and the examples is one that the command line understands."""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer.main

from elasticdl.cli.event_commands import DefaultGroup
from elasticdl.cli.main import app
from elasticdl.cli.options import plain_switches
from elasticdl.shared.job.kind_options import TrainFlags

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "roadmap.md"),  # what is still to come
    *sorted((ROOT / "model_zoo").glob("*.py")),
]
_BLOCK = re.compile(r"^(?: {4}| {7})(elasticdl (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
"""Indented by four columns, or by seven inside a numbered list."""
_INLINE = re.compile(r"`(elasticdl [a-z][^`]*)`")
_PLACES = {"N": "1", "SEQ": "9"}
"""What stands for a number in the text."""


def documented() -> list[tuple[str, str]]:
    """(page, command) of everything that a reader may copy."""
    return [
        (page.name, " ".join(command.replace("\\\n", " ").partition(" | ")[0].split()))
        for page in PAGES
        for pattern in (_BLOCK, _INLINE)
        for command in pattern.findall(page.read_text())
    ]


def parse(command: Any, words: list[str]) -> None:
    """Parse as the application would, without running anything."""
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        words = command.named(words) if isinstance(command, DefaultGroup) else words
        assert words[0] in command.commands, f"there is no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    with suppress(typer.Exit):  # --help
        command.make_context(command.name, words)


@pytest.fixture
def _job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented job file, as ``job.yaml`` in the working directory."""
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/job-files.md").read_text(), re.DOTALL)
    Path("job.yaml").write_text(block)


@pytest.mark.usefixtures("_job_file")
@pytest.mark.parametrize(("page", "command"), documented())
def test_is_understood(page: str, command: str) -> None:
    words = [_PLACES.get(word, word).replace("=N", "=1") for word in shlex.split(command)[1:]]
    root = typer.main.get_command(app)
    named = [word for word in words if not word.startswith("-")]
    if len(words) == 1 or (len(words) == len(named) == 2 and named[0] in {"train", "resume", "evaluate", "predict"}):
        words = [named[0], "--help"]  # the text names a command, it does not give one
    parse(root, plain_switches(words, TrainFlags))


def test_the_pages_hold_commands() -> None:
    assert len(documented()) > 15


def test_an_unknown_flag_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option: --no_such_flag"):
        parse(typer.main.get_command(app), ["train", "--no_such_flag=1"])
