"""Every block of code in the documentation is run by a test, or its commands name files, targets and flags that exist.

An indented block contains commands, a fenced one names its language. ``test_documented_commands`` parses the commands
of ``elasticdl``.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *(page for folder in ("", "tutorials", "contributing") for page in sorted((ROOT / "docs" / folder).glob("*.md"))),
]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)((?: {4,}\S[^\n]*\n)+)")
_INLINE = re.compile(r"`((?:make|python) [^`]+)`")

RUN: Mapping[str, str] = {
    "data.md": "tests/unit/data/test_custom_readers.py",
    "callbacks.md": "tests/unit/worker_model/test_documented_code.py",
    "migrate.md": "tests/unit/worker_model/test_first_files.py",
    "model-file.md": "tests/unit/worker_model/test_documented_code.py",
    "shared_cluster.md": "tests/unit/controller/test_tutorial.py",
    "fleet.md": "tests/unit/controller/test_simulation.py",
    "predict.md": "tests/unit/worker_model/test_documented_code.py",
    "own_data.md": "tests/e2e/test_tutorial.py",
    "your_script.md": "tests/e2e/test_script.py",
    "python-api.md": "tests/e2e/test_api.py",
    "trainingjob.md": "tests/unit/shared_kubernetes/test_training_job_definition.py",
    "job-files.md": "tests/unit/cli/test_documented_commands.py",
    "sql.md": "tests/unit/sql/test_documentation.py",
}
"""Page -> the test that runs or reads its blocks of Python, SQL and YAML."""
WRITTEN = ("own_data.md", "your_script.md")
"""Tutorials in which the reader writes the programs."""
FOREIGN: Mapping[str, str] = {
    "apt-get": "installs packages of the machine",
    "aws": "needs object storage",
    "cp": "copies files of the checkout, see test_paths_in_commands_exist",
    "docker": "needs a container engine; tests/cluster builds the same files",
    "export": "sets variables of the next commands",
    "kind": "needs a container engine",
    "kubectl": "needs a cluster; tests/cluster applies the overlays",
    "nats": "needs its program; tests/contract/bus/test_nats_cli.py runs every line",
    "pip": "downloads dependencies; tests/e2e/test_wheel.py installs the wheel without them",
    "source": "is the environment that make setup creates",
}
"""Programs of others -> why no test runs them as they are written."""
_SHELL = {"for", "do", "done"}


def commands(page: Path) -> Iterator[str]:
    """The commands of a page, in blocks and in its text, without ``elasticdl``'s own."""
    text = _FENCE.sub("", page.read_text())
    for block in _INDENTED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if command := " ".join(line.partition(" # ")[0].split()):
                yield command
    yield from (" ".join(command.split()) for command in _INLINE.findall(text))


def others() -> list[tuple[str, str]]:
    """(page, command) of everything but ``elasticdl``."""
    found = [(page.name, command) for page in PAGES for command in commands(page)]
    return [(page, command) for page, command in found if command.split()[0] not in {"elasticdl", *_SHELL}]


@pytest.mark.parametrize(("page", "command"), others())
def test_a_command_can_be_run(page: str, command: str) -> None:
    program, *words = [word.strip("[]") for word in shlex.split(command)]
    if program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert [word for word in words if "=" not in word and word not in targets] == []
    elif program == "python":
        sources = python_sources(words, written=page if page in WRITTEN else "")
        flags = [word.partition("=")[0] for word in words if word.startswith("--") and word != "--help"]
        assert [flag for flag in flags if not any(f'"{flag}"' in source for source in sources)] == []
    else:
        assert program in FOREIGN


def python_sources(words: list[str], *, written: str) -> list[str]:
    """The sources of the program that ``python`` runs: its module, and those beside it.

    Args:
        written: the tutorial that has the reader write it; empty: it is part of the checkout.
    """
    if words[:2] == ["-m", "elasticdl"]:
        words = words[2:]
    if words[0] == "-m" and words[1] in ("http.server", "pytest"):
        return [] if words[1] == "pytest" else ['"--directory"']
    found = importlib.util.find_spec(words[1]) if words[0] == "-m" and words[1].startswith("elasticdl.") else None
    if found is not None and found.origin:
        return [Path(found.origin).with_name("__main__.py").read_text()]
    path = ROOT / (words[1].replace(".", "/") if words[0] == "-m" else words[0])
    if written:
        assert re.search(rf"Save this as\s+`{path.name}`", (ROOT / "docs/tutorials" / written).read_text())
        return []
    folder = path if path.is_dir() else path.parent
    assert path.is_dir() or path.with_suffix(".py").is_file(), f"there is no program {path.relative_to(ROOT)}"
    return [file.read_text() for file in sorted(folder.glob("*.py"))]


@pytest.mark.parametrize(("page", "command"), others())
def test_paths_in_commands_exist(page: str, command: str) -> None:
    """Of the checkout: Dockerfiles and overlays, and folders of tests; those that a user creates are named ``ours``."""
    services = ("master", "ps", "worker") if "$service" in command else ("",)
    for service in services:
        words = shlex.split(command.replace("$service", service))
        paths = [word for word in words if word.startswith(("deploy/", "tests/", "benchmarks/"))]
        assert [path for path in paths if not (ROOT / path).exists() and not path.endswith("/ours")] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_code_is_run_by_a_test(page: Path) -> None:
    languages = {language for language, _ in _FENCE.findall(page.read_text())}
    assert languages <= {"diff", "python", "sql", "text", "yaml"}, "A fenced block names its language. Indent commands."
    for code in [code for language, code in _FENCE.findall(page.read_text()) if language == "python"]:
        compile(code, page.name, "exec")
    if languages & {"python", "sql", "yaml"}:
        assert page.name in (ROOT / RUN[page.name]).read_text()


def test_the_pages_have_commands() -> None:
    assert len(others()) > 50


@pytest.mark.parametrize(
    "command",
    ["make nothing", "python -m tests.lost", "python -m tests.sim --lost=1", "python benchmarks/lost.py", "lost x"],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    with pytest.raises(AssertionError):
        test_a_command_can_be_run("page.md", command)
