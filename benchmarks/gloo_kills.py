"""A group of Gloo processes that is formed again after each kill: what a ring is compared with."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

MEMBER = Path(__file__).parent / "peers/gloo_reforming.py"


class GlooGroup:
    """Members that reduce all the time; see ``peers/gloo_reforming.py``.

    Args:
        python: an interpreter that has PyTorch.
    """

    def __init__(self, python: str, size: int, elements: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self._command = [python, str(MEMBER)], [str(port), str(elements)]
        self._started, self._uuid = -1, time.monotonic_ns()
        self._store = self._start()
        self._await(self._store, "ready")
        self._members = [self._start() for _ in range(size)]
        self._form([self._await(one, "ready") for one in self._members])
        self._spare = self._start()
        self._spare_handle = self._await(self._spare, "ready")

    def kill(self, rank: int) -> float:
        """Kill a member; returns the seconds until every survivor has reduced in the next generation."""
        killed_s = time.monotonic()
        victim = self._members.pop(rank)
        victim.kill()
        committed_s = self._form([self._await(one, "left") for one in self._members])
        victim.wait()
        return committed_s - killed_s

    def replace(self) -> None:
        """Take in a new member, and start the one that will be the next."""
        for one in self._members:
            self._send(one, "pause")
        handles = [self._await(one, "left") for one in self._members]
        self._members.append(self._spare)
        self._form([*handles, self._spare_handle])
        self._spare = self._start()
        self._spare_handle = self._await(self._spare, "ready")

    def signal(self, number: signal.Signals) -> None:
        """Suspend all members, or let them continue."""
        for one in (*self._members, self._spare):
            os.kill(one.pid, number)

    def close(self) -> None:
        """End all members."""
        for one in (*self._members, self._spare, self._store):
            one.kill()
            one.wait()

    def _start(self) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        pipe, (script, arguments) = subprocess.PIPE, self._command
        command = [*script, str(self._started), *arguments]
        self._started += 1
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)

    def _form(self, handles: list[str]) -> float:
        """Form a generation; returns when every member has reduced in it."""
        self._uuid += 1
        for one in self._members:
            self._send(one, [self._uuid, handles])
        return max(float(self._await(one, "committed")) for one in self._members)

    @staticmethod
    def _send(member: subprocess.Popen[str], what: object) -> None:
        assert member.stdin is not None
        member.stdin.write(json.dumps(what) + "\n")
        member.stdin.flush()

    @staticmethod
    def _await(member: subprocess.Popen[str], what: str) -> str:
        assert member.stdout is not None
        while line := member.stdout.readline():
            if line.startswith("[") and (said := json.loads(line))[0] == what:
                return str(said[1])
        raise SystemExit("a process of Gloo has ended")
