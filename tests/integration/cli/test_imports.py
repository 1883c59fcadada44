"""``elasticdl --help`` in a process of its own: it must not wait for imports that only a job needs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.views.recorded import Recorded, header_of, recorded

from elasticdl.views.files.exported_log import export

HEAVY = (
    "numpy",
    "pyarrow",
    "nats",
    "tensorflow",
    "minio",
    "psutil",
    "sklearn",
    "structlog",
    "asyncio",
    "starlette",
    "google.protobuf",
    "elasticdl.master.core.state",
)
LEFT_OUT = ("psutil", "pydantic", "structlog", "typer")
SERVICES = ("tensorflow", "keras", "numba", "scipy")
COMMANDS = (
    "train",
    "evaluate",
    "predict",
    "resume",
    "stop",
    "jobs",
    "clean",
    "status",
    "tasks",
    "task",
    "events",
    "logs",
    "why",
    "dashboard",
)


def test_help_imports_nothing_heavy() -> None:
    code = f"""
import sys
sys.argv = ["elasticdl", "--help"]
from elasticdl.cli.main import main
try:
    main()
except SystemExit as ending:
    assert ending.code == 0
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in COMMANDS:
        assert command in done.stdout


def test_commands_that_look_at_a_job_need_no_flags_of_new_jobs() -> None:
    code = """
import sys
sys.argv = ["elasticdl", "status", "--help"]
sys.modules["elasticdl.shared.job.kind_options"] = sys.modules["elasticdl.cli.main"] = None
from elasticdl.cli.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Show the status of a job" in done.stdout


@pytest.mark.parametrize("line", ["status FILE", "tasks FILE --limit 3", "task FILE 0 --json", "why FILE"])
def test_commands_that_look_at_a_job_import_neither_typer_nor_structlog(line: str, tmp_path: Path) -> None:
    records = recorded("plain")
    asyncio.run(export(Recorded(records), tmp_path / "job.edl", header_of(records), None))
    code = f"""
import sys
from elasticdl.cli import __main__ as command
command.leave = lambda code: print(code, [name for name in {LEFT_OUT!r} if name in sys.modules])
sys.argv = ["elasticdl", *{line.replace("FILE", str(tmp_path / "job.edl")).split()!r}]
command.main()
"""
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize("debug", [False, True])
def test_details_are_hidden_although_structlog_is_imported_with_the_first_message(debug: bool) -> None:
    code = f"""
import sys
from elasticdl.shared.process import logs
log = logs.get_logger()
logs.hide_details(debug={debug})
print("structlog" in sys.modules)
log.warning("a detail")
log.critical("an error")
print("structlog" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
    assert ("a detail" in done.stderr) is debug
    assert "an error" in done.stderr


def test_ctrl_c_while_the_application_is_imported_ends_quietly() -> None:
    code = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGNAL)
sys.meta_path.insert(0, Finder())
from elasticdl.cli.__main__ import main
main()
"""
    for number in (signal.SIGINT, signal.SIGTERM):
        command = [sys.executable, "-c", code.replace("SIGNAL", number.name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")


def test_the_launcher_of_a_training_job_imports_nothing_that_only_its_services_need() -> None:
    code = f"""
import sys
import elasticdl.cli.commands.new_job, elasticdl.cli.local.running
print([name for name in {SERVICES!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
