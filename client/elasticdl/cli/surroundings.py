"""What commands need of the machine before they begin: an encoding for any file name, a home, and a working folder."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from elasticdl.shared.errors import UserError


def use_utf8() -> None:
    """Start again in UTF-8 mode if the locale has another encoding. All processes of a job inherit it."""
    if sys.getfilesystemencoding() != "utf-8":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def check_working_folder() -> None:
    """Refuse to run in a folder that was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise UserError("the working folder was deleted", hint="Change to a folder that exists.", usage=True) from error


def ensure_home(environment: MutableMapping[str, str]) -> str:
    """Set ``HOME`` where neither it nor the system's list of users gives one, as in containers with any user.

    Returns:
        What was done, as a sentence; empty: nothing.
    """
    try:
        Path.home()
    except RuntimeError:
        environment["HOME"] = str(Path(tempfile.gettempdir()) / f"elasticdl-{os.getuid()}")
        return f"HOME is not set, and user {os.getuid()} has no home folder. Using {environment['HOME']}."
    return ""
