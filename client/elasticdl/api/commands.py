"""Runs the command ``elasticdl`` in a process of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from elasticdl.cli import exit_codes
from elasticdl.cli.flag_values import as_text, did_you_mean
from elasticdl.cli.options import Flag
from elasticdl.shared.errors import ElasticDLError, UserError

_PREFIX = "Error: "


def run(*arguments: str, shows: bool = False) -> str:
    """Run a command to its end.

    Args:
        arguments: of the command.
        shows: also print each line of its output as it comes, in a notebook too.

    Returns:
        Its output.

    Raises:
        UserError: it was refused; the message is the command's.
        ElasticDLError: it failed.
        KeyboardInterrupt: the user interrupted it; the command has ended, too.
    """
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # A Ctrl-C reaches it once, through this function.
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                if shows:
                    sys.stdout.write(line)
                    sys.stdout.flush()
            code = process.wait()
        except KeyboardInterrupt:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)
            process.wait()
            raise
    output = "".join(lines)
    if code:
        message = output.rpartition(_PREFIX)[2].strip() or f"elasticdl {arguments[0]} ended with exit code {code}"
        raise UserError(message) if code == exit_codes.USAGE else ElasticDLError(message)
    return output


def as_flags(values: Mapping[str, Any], known: Mapping[str, Flag], function: str) -> list[str]:
    """Arguments of the command line for keyword arguments.

    Args:
        values: text, numbers, paths and booleans; dicts for ``NAME=VALUE`` items; lists for several values. A value of
            None is left out.
        known: the flags of the command, by field name.
        function: named in errors.

    Raises:
        TypeError: there is no such flag.
    """
    arguments = []
    for name, value in values.items():
        if name not in known:
            hint = did_you_mean(name, known, f"Its keywords are the flags of elasticdl {function}.")
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}")
        arguments += _as_flag(name, value, known[name])
    return arguments


def _as_flag(name: str, value: Any, flag: Flag) -> list[str]:
    spelled = f"--{flag.name or name}"
    if value is None:
        return []
    if isinstance(value, bool):
        return [spelled] if value else [f"--{flag.off}"] * bool(flag.off)
    return [f"{spelled}={as_text(name, value)}"]
