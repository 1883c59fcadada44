"""How a process that has checked the model becomes a worker: it waits until the launcher sends it an environment.

The environment of a worker is known when the NATS server runs and the master has ordered the worker. It travels through
a named pipe. A process that gets none is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticdl.shared.process.operating_system import kill_group


class Handover:
    """The process' side of the pipe.

    Open it before the launcher may send: it can only send to a pipe that is open.
    """

    def __init__(self, pipe: Path) -> None:
        # Open for writing too, so that the pipe has no end before the launcher has opened it.
        self._pipe = pipe.open("r+b", buffering=0)

    def wait(self) -> Mapping[str, str]:
        """Wait for the environment."""
        environment: Mapping[str, str] = json.loads(self._pipe.readline())
        self.close()
        return environment

    def close(self) -> None:
        """Close the pipe; nothing can be sent any more."""
        self._pipe.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingProcess:
    """The launcher's side."""

    pid: int
    pipe: Path

    def send(self, environment: Mapping[str, str]) -> bool:
        """Send the process its environment.

        Returns:
            Whether it was sent. If not, the process has died, or the environment is larger than the pipe.
        """
        message = json.dumps(dict(environment)).encode() + b"\n"
        try:
            pipe = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return os.write(pipe, message) == len(message)
        except OSError:
            return False
        finally:
            os.close(pipe)

    def kill(self) -> None:
        """Kill and reap the process, and kill what it has started."""
        kill_group(self.pid)
        os.waitpid(self.pid, 0)
