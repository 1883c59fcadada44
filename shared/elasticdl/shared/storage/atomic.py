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
def replacing(path: str | Path, *, mode: int = 0o666, sync: bool = True) -> Iterator[BinaryIO]:
    """Write a file that replaces ``path`` when the block succeeds, and is removed when it fails.

    Args:
        mode: the permissions of the new file, before the process's mask.
        sync: create missing folders, and have content and rename on disk when the block has ended. Without it, the
            folder has to exist, and a power failure may lose the content.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name[:_NAME_CHARS_MAX]}.{secrets.token_hex(6)}{PARTIAL_SUFFIX}")
    try:
        with _created(temporary, mode, _CREATE_TRIES_MAX if sync else 0) as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if sync:
        _sync_folder(path.parent)


def replace_text(path: Path, text: str, *, mode: int = 0o666) -> None:
    """Write a small file that other processes see either as it was or complete, without waiting for the disk.

    Args:
        path: the file, in a folder that exists. One that is no regular file, such as a pipe, is written as it is.

    Raises:
        OSError: it can't be written; the old file is left as it was.
    """
    if path.exists() and not path.is_file():
        path.write_text(text)
        return
    with replacing(path.resolve(), mode=mode, sync=False) as file:  # Replaces what a link points to, not the link.
        file.write(text.encode())


def move(path: Path, target: Path) -> None:
    """Rename a file, replacing what has the new name. The rename is on disk afterwards; missing folders are created."""
    target.parent.mkdir(parents=True, exist_ok=True)
    path.replace(target)
    _sync_folder(target.parent)


def _created(path: Path, mode: int, tries: int) -> BinaryIO:
    """Create a file; its folder is created again if ``remove_empty_folders`` removes it before the file exists."""

    def create() -> BinaryIO:
        return open(path, "xb", opener=lambda name, flags: os.open(name, flags, mode))

    for _ in range(tries):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return create()
    return create()


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
