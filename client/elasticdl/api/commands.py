"""Runs the command ``elasticdl`` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from elasticdl.cli import exit_codes
from elasticdl.cli.flag_values import as_text
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.job.options import Flag

_PREFIX = "Error: "
_BOX = "╭─ Error"
"""How the box begins that typer draws around wrong usage."""
_BOXED = re.compile(r"^│ (.*?) *│$", re.MULTILINE)
_STANDARD_INPUT = "/dev/stdin"
_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
"""Variables that have programs print to a pipe as they print to a terminal: with colours, and lines that move."""
_PROGRESS = re.compile(r"\[[\d:]+\] .*  workers \d+/\d+  ps \d+/\d+  queue \d+ \(\d+ in progress\)$")
"""A line of ``elasticdl.cli.display.live.progress_line``."""


def run(
    *arguments: str,
    secrets: Mapping[str, str] = MappingProxyType({}),
    shows: bool = False,
    envs: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a command to its end.

    Args:
        secrets: further flags and their values, which no other user of the machine can read.
        shows: also print each line of its output as it comes. In a notebook its progress is one line that changes.
        envs: further variables of its environment.

    Returns:
        Its output.

    Raises:
        UserError: it was refused; the message is the command's.
        ElasticDLError: it failed.
        KeyboardInterrupt: the user interrupted it; the command has ended, too.
    """
    lines: list[str] = []
    job_file = [f"--file={_STANDARD_INPUT}"] * bool(secrets)
    with subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", *arguments, *job_file],
        stdin=subprocess.PIPE if secrets else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=_plain_environment() | dict(envs),
        start_new_session=True,  # A Ctrl-C reaches it once, through this function.
    ) as process:
        assert process.stdout is not None
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # It may have ended already.
                pipe.write(json.dumps(dict(secrets)))  # JSON is YAML.
        show = Output() if shows else None
        try:
            for line in process.stdout:
                lines.append(line)
                if show:
                    show.line(line)
            code = process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            for line in process.stdout:  # What it says at its end: whether the job continues, and how to stop it.
                if show:
                    show.line(line)
            process.wait()
            raise
    output = "".join(lines)
    if code:
        is_usage = code == exit_codes.USAGE
        boxed = _BOXED.findall(output.rpartition(_BOX)[2]) if is_usage and _BOX in output else []
        message = " ".join(boxed) or output.rpartition(_PREFIX)[2].strip()
        message = message or f"elasticdl {arguments[0]} ended with exit code {code}"
        raise UserError(message) if is_usage else ElasticDLError(message)
    return output


def _plain_environment() -> dict[str, str]:
    """The environment of a command whose output is read: without colours, which Jupyter asks all programs to use."""
    return {name: value for name, value in os.environ.items() if name not in _COLOURS} | {"NO_COLOR": "1"}


def split_secrets(values: Mapping[str, Any], known: Mapping[str, Flag]) -> tuple[dict[str, Any], dict[str, str]]:
    """Keyword arguments for the command line, and those that may have credentials, as text."""
    secret = {name for name in values if name in known and known[name].is_secret}
    texts = {name: as_text(name, value) for name, value in values.items() if name in secret and value is not None}
    return {name: value for name, value in values.items() if name not in secret}, texts


def display_of_notebook() -> Callable[..., Any] | None:
    """``display`` of IPython if this process is the kernel of a notebook, whose output can be changed; else None."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    # A kernel has loaded this module. Not to import it keeps IPython out of our dependencies.
    display: Callable[..., Any] | None = getattr(sys.modules.get("IPython.display"), "display", None)
    return display if hasattr(shell, "kernel") else None


class Output:
    """The output of one command.

    Args:
        display: shows an object, and returns what updates it, as that of IPython; None: lines are printed.
    """

    def __init__(self, display: Callable[..., Any] | None = None) -> None:
        self._display = display or display_of_notebook()
        self._shown: Any = None

    def line(self, line: str) -> None:
        """Show a line, which ends with a line feed."""
        if self._display is None or not _PROGRESS.match(line.rstrip()):
            sys.stdout.write(line)
            sys.stdout.flush()
            return
        content = {"text/plain": line.rstrip()}
        if self._shown is None:
            self._shown = self._display(content, raw=True, display_id=True)
        else:
            self._shown.update(content, raw=True)
