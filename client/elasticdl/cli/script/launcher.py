"""The process that starts and follows a script's jobs: it waits ready, so that imports overlap the script's own."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from elasticdl.cli import exit_codes
from elasticdl.cli.interrupts import wait_for
from elasticdl.cli.local.processes.imports import module_command
from elasticdl.cli.script.places import Place
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.options import plain_values
from elasticdl.shared.kubernetes.options import KubernetesFlags

MODULE = "elasticdl.cli.script.fit_job"
WRITTEN = b"\n"
"""Tells the process that the data of its job is written."""
_ANSWER_BYTES_MAX = 1 << 16
_ENDING_S = 5.0
Show = Callable[[Mapping[str, Any]], None]
"""Shows the facts of a job; see ``fit_progress``."""


class JobInterrupt(KeyboardInterrupt):
    """The user has interrupted a job, which is what Ctrl-C does to ``fit()``; its launcher has said so."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self.job = job


class JobError(ElasticDLError):
    """A job has failed; its launcher has said so.

    Attributes:
        exit_code: of the job.
        reason: why; empty if the job did not say it.
    """

    def __init__(self, job: str, exit_code: int, reason: str = "") -> None:
        super().__init__(f"the job {job} has ended with exit code {exit_code}{': ' if reason else ''}{reason}")
        self.exit_code = exit_code
        self.reason = reason


class EarlyRun(NamedTuple):
    """A job that begins before its data is written.

    Attributes:
        first: flags of ``train`` with files of the first records, which exist.
        write: writes all data, and calls its argument now and then, which may raise.
    """

    first: Mapping[str, str]
    write: Callable[[Callable[[], None]], None]


class _EndedError(Exception):
    """The process that runs the job has ended while its data was written."""


class Launcher:
    """A process that runs jobs, one after the other, as long as they succeed.

    Args:
        environment: all of its environment. Flags are in it, because they may have credentials, which all users of the
            machine could read in a command line.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = module_command(MODULE)
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), env=environment)

    @property
    def has_ended(self) -> bool:
        """Whether it can't run a job any more."""
        return self._process.poll() is not None

    def begin(self, request: dict[str, Any], early: EarlyRun | None = None) -> bool:
        """Begin a job, and write its data; returns whether the job continues. If not, its process says why."""
        self._send(json.dumps(request | {"first": early.first if early else {}}).encode() + b"\n")
        return early is None or self._has_written(early)

    def finish(self, show: Show | None, *, continues: bool) -> int:
        """Follow the job to its end; returns its exit code. Unless that is 0, the process has ended."""
        if continues and follow(self._socket, show, self._on_interrupt):
            return 0
        return wait_for(self._process, passes_on=_lacks_terminal) or exit_codes.FAILURE

    def _send(self, line: bytes) -> None:
        with contextlib.suppress(OSError):  # It has died; its exit code says why.
            self._socket.sendall(line)

    def _has_written(self, early: EarlyRun) -> bool:
        """See ``begin``."""
        try:
            early.write(self._check)
        except _EndedError:
            return False
        except KeyboardInterrupt:
            self._on_interrupt()
            return False
        except BaseException as error:
            if isinstance(error, ElasticDLError):  # The process may be about to end, and has removed the job's folder.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_ENDING_S)
            if self.has_ended:  # For the same reason, such as a full disk, or because it has refused the model.
                return False
            self._socket.shutdown(socket.SHUT_WR)  # So the process ends silently.
            self._process.send_signal(signal.SIGINT)
            self._process.wait()
            raise
        self._send(WRITTEN)
        return True

    def _check(self) -> None:
        if self.has_ended:
            raise _EndedError

    def close(self) -> None:
        """End the process. It may still be importing; there is nothing to lose."""
        self._socket.close()
        self._process.terminate()
        self._process.wait()

    def leave(self) -> None:
        """Let the job continue as if the script had ended: its process ends after it."""
        self._socket.close()
        self._process.returncode = 0  # Popen need not wait for it, nor warn about it.

    def _on_interrupt(self) -> None:
        if _lacks_terminal():
            self._process.send_signal(signal.SIGINT)


def follow(connection: socket.socket, show: Show | None, on_interrupt: Callable[[], None]) -> bool:
    """Show the progress of a job until its process has said that it succeeded, or has ended; returns which.

    Args:
        on_interrupt: is called at Ctrl-C, after which the job still has to end.
    """
    rest = b""
    while True:
        try:
            received = connection.recv(_ANSWER_BYTES_MAX)
        except KeyboardInterrupt:
            on_interrupt()
            continue
        except OSError:
            received = b""
        if not received:
            return False
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            if not line:
                return True
            if show:
                try:
                    show(json.loads(line))
                except KeyboardInterrupt:
                    on_interrupt()


class Launchers:
    """Runs one job after the other.

    Args:
        flags: ``ScriptFlags`` of the command.
        pods: ``KubernetesFlags`` of the command.
        root: folder of the jobs' folders.
        place: where the jobs run.
        former: see ``former_jobs``.
        as_fit: whether the progress is shown as ``fit()`` shows it.
    """

    def __init__(
        self,
        flags: Any,
        pods: KubernetesFlags,
        root: Path,
        place: Place,
        former: Sequence[str] = (),
        *,
        as_fit: bool = False,
    ) -> None:
        self.flags = flags
        self.pods = pods
        self.root = root
        self.place = place
        self.as_fit = as_fit
        self._jobs: list[str] = []
        self._former = list(former)
        self._launcher: Launcher | None = None

    def __enter__(self) -> Self:
        self._launcher = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._launcher is not None:
            self._launcher.close()

    def former(self) -> str:
        """The job that this call of ``fit()`` has had in the interrupted run; empty: it has had none.

        Raises:
            JobError: the interrupted job was resumed, and has failed.
            JobInterrupt: it was interrupted again.
        """
        number = len(self._jobs)
        if number >= len(self._former):
            return ""
        job = self._former[number]
        self._jobs.append(job)
        if completion := self.place.completion(job):
            command = [*module_command("elasticdl.cli"), *completion]
            if code := wait_for(subprocess.Popen(command, text=True), passes_on=_lacks_terminal):
                raise _ended(job, code, self.place.reason(job))
        return job

    def note(self, job: str, script: Path) -> None:
        """Keep which call of ``fit()`` a job is."""
        self.place.keep(job, {"script": str(script), "arguments": sys.argv[1:], "before": self._jobs})
        self._jobs.append(job)

    def run(
        self,
        job: str,
        values: dict[str, Any],
        *,
        quiet: bool,
        replace: tuple[str, str],
        show: Show | None = None,
        early: EarlyRun | None = None,
    ) -> None:
        """Run a job to its end, with its progress on this process' output.

        Args:
            values: flags of ``train`` that the script's call gives.
            quiet: print errors only.
            replace: the model file, and what messages call it.
            show: shows the progress in place of that.
            early: writes the data; None: the data is complete.

        Raises:
            JobError: the job has failed.
            JobInterrupt: the user interrupted it.
        """
        launcher, self._launcher = self._launcher, None
        if launcher is not None and launcher.has_ended:
            launcher.close()
            launcher = None
        launcher = launcher or self._start()
        refusal = self.root / f".{job}.refused"
        request = {"job": job, "values": values, "quiet": quiet, "replace": replace, "folder": os.getcwd()}
        request |= {"refusal": str(refusal), "number": len(self._jobs), "shows_facts": show is not None}
        sys.stdout.flush()
        try:
            continues = launcher.begin(request, early)
        except BaseException:  # It has no data, so it has not trained.
            launcher.close()
            with contextlib.suppress(ElasticDLError):
                self.place.remove(job)
            raise
        try:
            code = launcher.finish(show, continues=continues)
        except BaseException:
            launcher.leave()
            raise
        if code:
            launcher.close()
            self._say_how_to_continue(job, code)
            said = refusal.read_text() if refusal.exists() else self.place.reason(job)
            refusal.unlink(missing_ok=True)
            raise _ended(job, code, said)
        self._launcher = launcher

    def _say_how_to_continue(self, job: str, code: int) -> None:
        with contextlib.suppress(ElasticDLError):  # The cluster may be away. The job's command has said what matters.
            if not self.place.is_there(job):
                self.place.remove(job)
            else:
                if code < 0:
                    name = signal.Signals(-code).name
                    sys.stderr.write(f"The process that runs the jobs of this script has died ({name}).\n")
                command = shlex.join(["elasticdl", "run", f"--resume={job}", *self.place.arguments, *sys.argv])
                cause = ", once the cause is gone" if code > 0 and code != exit_codes.INTERRUPTED else ""
                sys.stderr.write(f"To continue this job and then the script{cause}: {command}\n")

    def _start(self) -> Launcher:
        given = {**plain_values(self.flags), **plain_values(self.pods)}
        return Launcher({**os.environ, "ELASTICDL_SCRIPT": json.dumps(given), "ELASTICDL_SCRIPT_ROOT": str(self.root)})


def former_jobs(place: Place, script: Path, resumed: str, arguments: Sequence[str]) -> list[str]:
    """The jobs that an interrupted run of a script has left, one for each call of ``fit()`` from the first one on.

    Args:
        script: the folder of this file may be another one than at the first run.
        resumed: id of the last of those jobs; empty: there are none.
        arguments: of the script; if they are others than at the first run, this says so.

    Raises:
        UserError: there is no such job, or it is not that of this script.
    """
    if not resumed:
        return []
    record = place.record(resumed)
    if (other := Path(str(record.get("script", script))).name) != script.name:
        raise UserError(f"--resume={resumed}: that is a job of {other}, not of {script.name}", usage=True)
    if (former := record.get("arguments", list(arguments))) != list(arguments):
        sys.stderr.write(
            f"Job {resumed} began with other arguments of {script.name}, {shlex.join(former) or 'none'}. Its data and "
            "results are those of that run.\n"
        )
    return [*record["before"], resumed]


def _ended(job: str, code: int, reason: str) -> BaseException:
    """What ``fit()`` raises for a job that has not succeeded."""
    if code == exit_codes.INTERRUPTED:
        return JobInterrupt(job)
    return JobError(job, code if code > 0 else exit_codes.FAILURE, reason)


def _lacks_terminal() -> bool:
    """Whether this process is not in the foreground of a terminal, which sends Ctrl-C to all of its processes."""
    try:
        return os.tcgetpgrp(0) != os.getpgrp()
    except OSError:
        return True
