"""The built wheel, installed alone into an empty environment, is the whole program.

Its dependencies are borrowed from the environment that runs the tests, whose path is added; a path that is added this
way does not bring along the editable installation of this checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.deadline import DEADLINE_S

ROOT = Path(__file__).resolve().parents[2]
PORTIONS = ("shared", "client", "services/master", "services/worker", "services/ps", "services/controller")
PACKAGES = (
    "api",
    "cli",
    "controller",
    "dashboard",
    "layers",
    "master",
    "ps",
    "shared",
    "shipping",
    "sql",
    "views",
    "worker",
    "zoo",
)
IMPORT = """
import importlib, sys
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    assert module.__file__.startswith(sys.argv[1]), module.__file__
assert "tensorflow" not in sys.modules
"""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """A wheel and the environment that it was installed into."""

    wheel: Path
    environment: Path
    borrowed: Path
    """The file that adds the packages of the environment that runs the tests."""

    @property
    def bin(self) -> Path:
        """The folder of its programs."""
        return self.environment / "bin"

    def run(self, *command: str, cwd: Path, exit_code: int = 0) -> str:
        """Run a command outside of the checkout; it has to end with this exit code."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "ELASTICDL_"))}
        outcome = subprocess.run(
            command,
            cwd=cwd,
            env=kept | {"ELASTICDL_RUN_DIR": str(cwd / "jobs"), "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert outcome.returncode == exit_code, outcome.stdout
        return outcome.stdout


def build(folder: Path, *kind: str) -> Path:
    """Build as ``make wheel`` does, with the installed build backend instead of a downloaded one; returns the wheel."""
    command = [sys.executable, "-m", "build", *kind, "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=DEADLINE_S)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build(folder, "--wheel")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)}))
    borrowed = packages / "borrowed.pth"
    borrowed.write_text("".join(f"{path}\n" for path in sys.path if path.endswith("site-packages")))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=DEADLINE_S)
    return Installed(wheel=wheel, environment=environment, borrowed=borrowed)


def contents(wheel: Path) -> dict[str, int]:
    """Checksum of each file of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def test_the_wheel_holds_every_module_and_nothing_else(installed: Installed) -> None:
    expected = {
        str(path.relative_to(ROOT / portion))
        for portion in PORTIONS
        for path in (ROOT / portion / "elasticdl").rglob("*.py")
    }
    expected |= {f"elasticdl/model_zoo/{path.name}" for path in (ROOT / "model_zoo").glob("*.py")}
    with zipfile.ZipFile(installed.wheel) as archive:
        held = {name for name in archive.namelist() if name.endswith(".py")}
        typed = {name for name in archive.namelist() if name.endswith("py.typed")}
        page = {Path(name).name for name in archive.namelist() if name.startswith("elasticdl/dashboard/static/")}
    assert held == expected
    assert {"index.html", "app.js", "app.css"} <= page
    assert typed == {f"elasticdl/{package}/py.typed" for package in PACKAGES}
    assert len(expected) > 100
    assert "elasticdl/__init__.py" not in held


def test_a_wheel_from_the_source_distribution_is_the_same(installed: Installed, tmp_path: Path) -> None:
    wheel = build(tmp_path)  # Without a kind, build makes the source distribution, and the wheel from that alone.
    assert len(list(tmp_path.glob("*.tar.gz"))) == 1
    assert contents(wheel) == contents(installed.wheel)


def test_every_service_is_imported_from_the_wheel(installed: Installed, tmp_path: Path) -> None:
    services = ["elasticdl.shared.job.plan", "elasticdl.cli.main", "elasticdl.master.main", "elasticdl.ps.main"]
    services += ["elasticdl.worker.main"]
    installed.run(
        str(installed.bin / "python"), "-c", IMPORT, str(installed.environment.resolve()), *services, cwd=tmp_path
    )


def test_the_command_line_of_the_wheel(installed: Installed, tmp_path: Path) -> None:
    elasticdl = str(installed.bin / "elasticdl")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert installed.run(elasticdl, "--version", cwd=tmp_path).strip() == f"elasticdl {version}"
    assert "train" in installed.run(elasticdl, "--help", cwd=tmp_path)
    installed.run(elasticdl, "zoo", "data", "mnist", "mnist", cwd=tmp_path)
    flags = ["--model_def=mnist_functional_api.custom_model", "--training_data=mnist/train", "--dry_run"]
    assert "1,433" in installed.run(elasticdl, "train", *flags, cwd=tmp_path)


def test_without_tensorflow_train_names_the_extra_to_install(installed: Installed, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    for folder in map(Path, installed.borrowed.read_text().split()):
        for entry in folder.iterdir():
            if not entry.name.startswith(("tensorflow", "keras", "elasticdl")) and entry.suffix != ".pth":
                (others / entry.name).symlink_to(entry)
    before = installed.borrowed.read_text()
    installed.borrowed.write_text(f"{others}\n")
    try:
        elasticdl = str(installed.bin / "elasticdl")
        installed.run(elasticdl, "zoo", "data", "mnist", "mnist", cwd=tmp_path)
        flags = ["--model_def=mnist_functional_api.custom_model", "--training_data=mnist/train"]
        refused = installed.run(elasticdl, "train", *flags, cwd=tmp_path, exit_code=1)
    finally:
        installed.borrowed.write_text(before)
    assert "not installed: keras, tensorflow" in refused
    assert "pip install 'elasticdl[worker]'" in refused
    assert "Traceback" not in refused
