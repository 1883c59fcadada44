"""The documentation names modules that exist, and says where things are decided."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PORTIONS = [
    ROOT / folder
    for folder in ("shared", "client", "services/master", "services/worker", "services/ps", "services/controller")
]
DOCS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "contributing").glob("*.md")),
]
MODULE = re.compile(r"`(elasticdl(?:\.\w+)+)`")
FRAME = re.compile(r"`(elasticdl(?:\.\w+)+):([\w.]+)`")
"""A function, method or class: ``module:name``."""
NOT_MODULES = frozenset({"elasticdl.v1"})
"""Packages of protobuf."""


def source_of(name: str) -> str:
    """The source of a module or package, or of the module that defines a name; empty: there is none."""
    for module, attribute in ((name, ""), name.rpartition(".")[::2]):
        path = Path(*module.split("."))
        for portion in PORTIONS:
            for file in (portion / path.with_suffix(".py"), portion / path / "__init__.py"):
                if file.exists() and attribute in file.read_text():
                    return file.read_text()
            if not attribute and (portion / path).is_dir():
                return " "
    return ""


def decisions() -> list[tuple[str, str]]:
    """(term, module) of each row of the table in architecture.md."""
    table = (ROOT / "docs/architecture.md").read_text().partition("## Where is it decided")[2]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if "`elasticdl." in line]
    return [(row[0], module) for row in rows for module in MODULE.findall(row[2])]


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_documents_name_modules_that_exist(path: Path) -> None:
    names = set(MODULE.findall(path.read_text())) - NOT_MODULES
    assert sorted(name for name in names if not source_of(name)) == []


def definitions(node: ast.AST, prefix: str = "") -> set[str]:
    """Names of the functions and classes of a module, those inside classes as ``Class.name``."""
    found = set()
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= {prefix + each.name, *definitions(each, f"{prefix}{each.name}.")}
    return found


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_documents_name_functions_that_exist(path: Path) -> None:
    frames = FRAME.findall(path.read_text())
    missing = [f"{module}:{name}" for module, name in frames if name not in definitions(ast.parse(source_of(module)))]
    assert missing == []


def test_each_decision_is_found_by_its_term() -> None:
    found = decisions()
    assert len(found) > 10
    for term, module in found:
        docstring = ast.get_docstring(ast.parse(source_of(module))) or ""
        assert term in " ".join(docstring.lower().split()), f"the docstring of {module} does not say {term!r}"


def slug(heading: str) -> str:
    """The anchor that GitHub, and the site as mkdocs.yml sets it up, give to a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("path", [*DOCS, *sorted((ROOT / "docs").glob("*/*.md"))], ids=lambda path: path.name)
def test_links_into_documents_lead_to_a_heading(path: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", path.read_text())
    missing = [
        f"{target}#{anchor}"
        for target, anchor in links
        if anchor not in anchors((path.parent / target) if target else path)
    ]
    assert missing == []


FOREIGN = frozenset(
    {
        *("Init:0/1", "Init:Error", "ImagePullBackOff", "ErrImageNeverPull", "Pending", "Terminating", "OOMKilled"),
        *('violates PodSecurity "restricted"', 'secret "elasticdl" not found', "nats-0", "nats", "submit"),
        *("maximum payload exceeded", "ModuleNotFoundError", "ResolutionImpossible", "fit()", "elasticdl-worker"),
    }
)
"""Texts in the table of symptoms that Kubernetes, NATS, Python and pip show."""


def symptoms() -> list[str]:
    """The messages that the page of troubleshooting quotes: code in the first column, cut where values are left out."""
    tables = re.findall(r"^\| symptom .*\n\|[-|]+\n((?:\|.*\n)+)", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    cells = [row.strip("| ").split(" | ")[0] for table in tables for row in table.splitlines()]
    quoted = {quote for cell in cells for quote in re.findall(r"`([^`]+)`", cell)} - FOREIGN
    return sorted(part.strip(" ',:") for quote in quoted for part in quote.split("...") if part.strip(" ',:"))


def test_troubleshooting_quotes_messages_that_exist() -> None:
    texts = [
        node.value
        for portion in PORTIONS
        for path in portion.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    parts = symptoms()
    assert len(parts) > 40
    missing = [part for part in parts if not any(part in text for text in texts)]
    assert missing == []
