"""Local files that are replaced atomically: readers see the old content or the new, also after a power failure."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PARTIAL_SUFFIX = ".partial"
"""Suffix of a file that is being written; such files are never listed."""
_CREATE_TRIES_MAX = 20
_NAME_CHARS_MAX = 200
"""Characters of the target's name that the temporary name keeps: file systems limit its length."""


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """Write a file that replaces ``path`` when the block succeeds, and is removed when it fails.

    Missing folders are created. The content and the rename are on disk when the block has ended.

    Raises:
        OSError: the file can't be written.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name[:_NAME_CHARS_MAX]}.{secrets.token_hex(6)}{PARTIAL_SUFFIX}")
    try:
        with _created(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def move(path: Path, target: Path) -> None:
    """Rename a file, replacing what has the new name. The rename is on disk afterwards; missing folders are created.

    Raises:
        OSError: there is no such file, or the folders can't be written.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    _sync_folder(target.parent)


def _created(path: Path) -> BinaryIO:
    """Create a file; its folder is created again if ``remove_empty_folders`` removes it before the file exists."""
    for _ in range(_CREATE_TRIES_MAX):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("xb")
    return path.open("xb")


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
