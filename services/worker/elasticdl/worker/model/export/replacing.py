"""Files that take their names once they are complete, and what is left of a process that was killed before."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = ".export-"
"""Prefix of folders whose files are not complete yet."""
_FORMER = "old-"
"""Prefix of what is replaced, where the file system can't exchange two names."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@contextmanager
def unfinished(output_dir: Path) -> Iterator[Path]:
    """A folder on the same disk for files that are not complete; it is deleted in the end.

    Folders of processes that were killed are deleted, too. A living one holds a lock on its folder.
    """
    output_dir.mkdir(parents=True, exist_ok=True)
    for left in output_dir.glob(f"{PREFIX}*"):
        _remove_left(left, output_dir)
    while True:
        folder = Path(tempfile.mkdtemp(dir=output_dir, prefix=PREFIX))
        descriptor = _locked(folder)
        if folder.is_dir():
            break
        os.close(descriptor)  # Another process took it for left over, before it was locked.
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def replace(new: Path, target: Path) -> None:
    """Give a finished file or folder its name, in one step where the system can exchange two names."""
    if not target.is_dir() or new.is_file():
        new.replace(target)
    elif not exchange(new, target):
        target.rename(new.parent / f"{_FORMER}{target.name}")
        new.rename(target)


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step; whether this system and this file system can."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _locked(folder: Path) -> int:
    """A descriptor with a lock on a folder, which ends with this process. Some file systems have no locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(folder.parent, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _remove_left(left: Path, output_dir: Path) -> None:
    """Delete a folder unless a process works in it. What had a name that nothing has now gets it back."""
    try:
        descriptor = os.open(left, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for former in left.glob(f"{_FORMER}*"):
            target = output_dir / former.name.removeprefix(_FORMER)
            if not target.exists():
                former.rename(target)
        shutil.rmtree(left, ignore_errors=True)
    except OSError:
        return  # It is in use, or this process can't tell.
    finally:
        os.close(descriptor)
