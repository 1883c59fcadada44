"""Runs the command line as users do: a process, a folder, a report."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.deadline import DEADLINE_S

PROGRESS = r"batch [1-9][\d,]*/.* workers (\d+)/\1\b"
"""A progress line of a job that has trained a batch and whose workers all run."""


@dataclass(kw_only=True)
class Outcome:
    """What a finished command left behind."""

    exit_code: int
    output: str
    report: dict[str, Any]

    @property
    def job(self) -> str:
        """The job's id."""
        return str(self.report["job"])


@dataclass(kw_only=True)
class Running:
    """A command that is under way, with everything it has printed so far."""

    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    _more: threading.Condition = field(default_factory=threading.Condition)
    _has_ended: bool = False

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line)
                self._more.notify_all()
        with self._more:
            self._has_ended = True
            self._more.notify_all()

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def wait_for(self, pattern: str, timeout_s: float = DEADLINE_S) -> re.Match[str]:
        """Return the first match of ``pattern`` in what the command prints."""
        with self._more:
            self._more.wait_for(lambda: re.search(pattern, self.output) or self._has_ended, timeout_s)
        match = re.search(pattern, self.output)
        assert match, f"{pattern!r} was not printed:\n{self.output}"
        return match

    def wait_for_progress(self) -> None:
        """Wait until the job has trained a batch and all of its workers run."""
        self.wait_for(PROGRESS)

    def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait for the command's end and return its exit code."""
        return self.process.wait(timeout_s)


@dataclass(kw_only=True)
class Elastic:
    """A user with a home folder of their own."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def jobs(self) -> Path:
        """Where the run directories are."""
        return self.folder / "jobs"

    @property
    def job(self) -> str:
        """Id of the only job."""
        (folder,) = self.jobs.iterdir()
        return folder.name

    def pids(self, *pods: str) -> list[int]:
        """Process ids of pods of the only job, from one ``elasticdl status``."""
        outcome = self.run("status", self.job, "--json")
        found = json.loads(outcome.output)["pods"]
        pids = [int(found[pod]["pid"]) for pod in pods]
        assert all(pids), f"not all of {pods} are running: {pids}"  # A signal to 0 would reach the tests themselves.
        return pids

    def pid(self, pod: str) -> int:
        """Process id of a pod of the only job."""
        return self.pids(pod)[0]

    def kill(self, pod: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a pod of the only job."""
        os.kill(self.pid(pod), number)

    def wait_until_gone(self) -> None:
        """Wait until every process of every job has ended by itself."""
        deadline = time.monotonic() + DEADLINE_S
        while left := left_behind(self.folder):
            assert time.monotonic() < deadline, f"still running: {left}"
            psutil.wait_procs(_processes(left), timeout=deadline - time.monotonic())

    def full_environment(self) -> dict[str, str]:
        """The environment of the user's commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ELASTICDL_")}
        return kept | {"ELASTICDL_RUN_DIR": str(self.jobs), "COLUMNS": "200"} | self.environment

    @contextmanager
    def start(self, *arguments: str, folder: Path | None = None) -> Iterator[Running]:
        """Start ``elasticdl ARGUMENTS`` in a folder, by default the user's; what is left of it is killed at the end."""
        process = subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli", *arguments],
            cwd=folder or self.folder,
            env=self.full_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running = Running(process=process)
        reader = threading.Thread(target=running.read, daemon=True)
        reader.start()
        try:
            yield running
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait()
            reader.join(10)
            assert process.stdout is not None
            process.stdout.close()

    def remove_delay(self) -> None:
        """Let jobs with a model file of ``slowly`` run as fast as they can from now on."""
        (self.folder / "remove_delay").touch()

    def run(self, *arguments: str, folder: Path | None = None, timeout_s: float = DEADLINE_S) -> Outcome:
        """Run a command to its end."""
        report = self.folder / "report.json"
        report.unlink(missing_ok=True)
        extra = ["--report", str(report)] if arguments[0] in ("train", "evaluate", "predict", "resume") else []
        with self.start(*arguments, *extra, folder=folder) as running:
            exit_code = running.wait(timeout_s)
        facts = json.loads(report.read_text()) if report.exists() else {}
        return Outcome(exit_code=exit_code, output=running.output, report=facts)

    def train(self, *flags: str, timeout_s: float = DEADLINE_S) -> Outcome:
        """Run a training job that has to end well and exactly."""
        outcome = self.run("train", *flags, timeout_s=timeout_s)
        assert outcome.exit_code == 0, outcome.output
        check_exact(outcome)
        return outcome


def check_exact(outcome: Outcome) -> None:
    """The report says that every batch of every epoch was absorbed exactly once, without repair."""
    assert outcome.report["state"] == "succeeded", outcome.output
    assert outcome.report["audit"]["exact"] is True
    assert outcome.report["audit"]["repaired"] == 0


def left_behind(folder: Path) -> list[str]:
    """Command lines of processes that still belong to a run directory below ``folder``."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        mine = str(folder).encode()
        if entry.name != str(os.getpid()) and state != "Z" and (mine in environment or str(folder) in line):
            found.append(f"{entry.name}: {line}")
    return found


def _processes(left: list[str]) -> list[psutil.Process]:
    found = []
    for line in left:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(line.split(":")[0])))
    return found


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """Write a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
