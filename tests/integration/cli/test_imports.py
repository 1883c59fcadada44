"""``elasticdl --help`` in a process of its own: it must not wait for imports that only a job needs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "pyarrow", "nats", "tensorflow", "minio", "psutil", "sklearn", "structlog", "asyncio")
COMMANDS = ("train", "evaluate", "predict", "resume", "stop", "jobs", "clean", "status", "tasks", "task", "events")


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
