"""How long a test waits for what must come."""

from __future__ import annotations

import os
import select
from pathlib import Path

DEADLINE_S = 200.0
"""Never a measurement: it only ends a test that hangs, also on a machine that is ten times slower."""


class Gate:
    """A named pipe, to which another process writes when it has come to a certain point."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait(self) -> None:
        """Wait until a process has written to the pipe."""
        ready, _, _ = select.select([self._descriptor], [], [], DEADLINE_S)
        os.close(self._descriptor)
        assert ready, f"no process has written to {self.path}"
