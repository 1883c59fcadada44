"""Prints the output of a command; in a notebook the progress of its job is one line that changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

_PROGRESS = re.compile(r"\[[\d:]+\] .*  workers \d+/\d+  ps \d+/\d+  queue \d+ \(\d+ in progress\)$")
"""A line of ``elasticdl.cli.display.live.progress_line``."""


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
