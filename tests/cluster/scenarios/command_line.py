"""Jobs of a namespace, started and watched by the commands that users have."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND_LIMIT_S = 300
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """The command ``elasticdl`` for the jobs of one namespace."""

    kubeconfig: Path
    namespace: str
    folder: Path
    """Working directory of the commands, and their ``--run_dir``."""
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *arguments: str) -> str:
        """The output of a command; fails the test with its messages if it fails."""
        done = self._run(*arguments)
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def fails(self, *arguments: str) -> str:
        """What a command prints that has to fail."""
        done = self._run(*arguments)
        assert done.returncode, f"{' '.join(arguments)} succeeded\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A command that runs; both output streams are in its ``stdout``."""
        return subprocess.Popen(
            self._command(*arguments),
            cwd=self.folder,
            env=self._variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*arguments),
            cwd=self.folder,
            env=self._variables(),
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )

    def _command(self, *arguments: str) -> list[str]:
        return [str(Path(sys.executable).with_name("elasticdl")), *arguments]

    def _variables(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            "KUBECONFIG": str(self.kubeconfig),
            "ELASTICDL_NAMESPACE": self.namespace,
            "ELASTICDL_RUN_DIR": str(self.folder / "jobs"),
        }

    def train(self, name: str, *flags: str) -> None:
        """Start a job of this name and return."""
        self.run("train", "--platform=kubernetes", "--detach", f"--job_name={name}", *flags)

    def report(self, job: str) -> dict[str, Any]:
        """The report of a running or ended job."""
        report: dict[str, Any] = json.loads(self.run("report", job, "--json"))
        return report

    def wait_for_end(self, job: str, limit_s: float) -> dict[str, Any]:
        """The report of a job once it has ended."""
        ended = ("succeeded", "failed", "stopped")
        return self.wait_for_report(job, limit_s, lambda report: report["state"] in ended, "did not end")

    def wait_for_report(
        self, job: str, limit_s: float, is_wanted: Callable[[dict[str, Any]], bool], otherwise: str
    ) -> dict[str, Any]:
        """The report of a job once it is as wanted. There is none before the job is planned, or while NATS is busy."""
        end_s = time.monotonic() + limit_s
        while True:
            done = self._run("report", job, "--json")
            report: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
            if report and is_wanted(report):
                return report
            assert time.monotonic() < end_s, f"{job} {otherwise} within {limit_s:g} s.\n{done.stdout}{done.stderr}"
            time.sleep(POLL_S)
