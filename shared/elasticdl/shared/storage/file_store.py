"""Objects as local files, replaced atomically."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from elasticdl.shared.errors import ElasticDLError, NoSpaceError, PermanentError, TransientError
from elasticdl.shared.storage.atomic import PARTIAL_SUFFIX, move, replacing
from elasticdl.shared.storage.store import READ_AHEAD_BYTES, ObjectChangedError, ObjectInfo, ObjectNotFoundError
from elasticdl.shared.storage.uris import local_path, scheme_of, to_uri

_AWAY = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.EMFILE, errno.ENFILE}


class FileStore:
    """Objects under ``file://`` URIs.

    A write goes to a temporary file beside the target, is synced, and renamed over it: readers see the old content or
    the new, also after a power cut. The etag is (size, modification time in ns, inode), so a replaced file differs even
    when size and time agree.
    """

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ``ObjectStore.list``. Links to folders are followed, files that vanish meanwhile are left out."""
        # "folder/" must reach the walk with its slash, which Path would drop.
        path = str(local_path(prefix)) + ("/" if prefix.endswith("/") else "")
        folder = path if path.endswith("/") else os.path.dirname(path)
        found = sorted(to_uri(file) for file in _walk(folder, path))
        for uri in found:
            with suppress(ObjectNotFoundError):
                yield self.info(uri)

    def info(self, uri: str) -> ObjectInfo:
        """See ``ObjectStore.info``."""
        path = local_path(uri)
        with _translated(uri):
            status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ObjectNotFoundError(uri)
        return ObjectInfo(uri=uri, size_bytes=status.st_size, etag=_etag(status))

    def read(self, uri: str, start: int = 0, length: int | None = None, *, etag: str = "") -> bytes:
        """See ``ObjectStore.read``."""
        with _translated(uri), local_path(uri).open("rb", buffering=0) as file:
            if etag and _etag(os.fstat(file.fileno())) != etag:
                raise ObjectChangedError(uri)
            if length is None:
                file.seek(start)
                return file.readall()
            data = bytearray()
            while len(data) < length:  # pread may return less than it was asked for (2 GiB at most)
                part = os.pread(file.fileno(), length - len(data), start + len(data))
                if not part:
                    break
                if len(part) == length:
                    return part
                data += part
            return bytes(data)

    def open(self, uri: str, start: int = 0) -> BinaryIO:
        """See ``ObjectStore.open``."""
        with _translated(uri):
            file = local_path(uri).open("rb", buffering=READ_AHEAD_BYTES)
            file.seek(start)
            return file

    def write(self, uri: str, data: bytes | memoryview | Path) -> ObjectInfo:
        """See ``ObjectStore.write``. Missing folders are created."""
        with _translated(uri), replacing(local_path(uri)) as file:
            if isinstance(data, Path):
                with data.open("rb") as source:
                    shutil.copyfileobj(source, file, READ_AHEAD_BYTES)
            else:
                file.write(data)
        return self.info(uri)

    def create(self, uri: str, data: bytes) -> bool:
        """See ``ObjectStore.create``."""
        path = local_path(uri)
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PARTIAL_SUFFIX}")
        with _translated(uri):
            with replacing(partial) as file:
                file.write(data)
            try:
                os.link(partial, path)  # Fails if there is one; a rename would replace it.
            except FileExistsError:
                return False
            finally:
                partial.unlink(missing_ok=True)
        return True

    def delete(self, uri: str) -> None:
        """See ``ObjectStore.delete``."""
        with _translated(uri):
            local_path(uri).unlink(missing_ok=True)

    def move(self, uri: str, target: str) -> None:
        """See ``ObjectStore.move``. Missing folders are created, and the rename is on disk afterwards."""
        with _translated(uri):
            move(local_path(uri), local_path(target))


def _etag(status: os.stat_result) -> str:
    return f"{status.st_size:x}-{status.st_mtime_ns:x}-{status.st_ino:x}"


def _walk(folder: str, prefix: str) -> Iterator[str]:
    """Files below ``folder`` whose path begins with ``prefix``, without entering folders that can't hold any."""
    for parent, folders, files, is_repeated in _folders(folder):
        if is_repeated:
            continue
        folders[:] = [name for name in folders if _may_hold(os.path.join(parent, name) + "/", prefix)]
        for name in files:
            path = os.path.join(parent, name)
            if path.startswith(prefix) and not name.endswith(PARTIAL_SUFFIX):
                yield path


def _folders(folder: str) -> Iterator[tuple[str, list[str], list[str], bool]]:
    """As ``os.walk``, through links; a folder that was entered already under another name is not entered again."""
    entered: set[str] = set()  # a link to a folder above would be a circle
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        real = os.path.realpath(parent)
        is_repeated = real in entered
        if is_repeated:
            folders.clear()
        entered.add(real)
        yield parent, folders, files, is_repeated


def repeated_folders(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The links below a folder whose files ``FileStore.list`` leaves out, and the folder that each leads to."""
    for parent, _, _, is_repeated in _folders(str(folder)):
        if is_repeated:
            yield Path(parent), Path(parent).resolve()


def _may_hold(folder: str, prefix: str) -> bool:
    return folder.startswith(prefix) or prefix.startswith(folder)


def remove_empty_folders(prefix: str) -> None:
    """Remove the empty folders in a local folder; object stores have none, so nothing happens there.

    Safe while other processes write there: a folder with a file in it stays, and ``write`` creates its own again.
    """
    if scheme_of(prefix) != "file":
        return
    with suppress(OSError):
        for folder in list(os.scandir(local_path(prefix))):
            with suppress(OSError):
                os.rmdir(folder.path)


def remove_abandoned(prefix: str, age_s: float) -> None:
    """Remove what killed processes were writing to a local folder; object stores do not list such parts.

    Args:
        age_s: seconds since the last write to it.
    """
    if scheme_of(prefix) != "file":
        return
    with suppress(OSError):
        for file in list(os.scandir(local_path(prefix))):
            with suppress(OSError):
                if file.name.endswith(PARTIAL_SUFFIX) and file.stat().st_mtime < time.time() - age_s:
                    os.unlink(file.path)


def free_bytes(folder: Path) -> int:
    """Free space on the disk of a folder, which need not exist yet, bytes."""
    return shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists())).free


@contextmanager
def _translated(uri: str) -> Iterator[None]:
    """Translate ``OSError`` into an error of this package that names the file."""
    try:
        yield
    except OSError as error:
        raise translate(error, uri) from error


def translate(error: OSError, uri: str) -> ElasticDLError:
    """The error of this package for an ``OSError`` on ``uri``."""
    path = local_path(uri)
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return ObjectNotFoundError(uri)
        case errno.ENOSPC | errno.EDQUOT:
            return NoSpaceError(f"disk full: {path} can't be written ({error.strerror})")
        case number if number in _AWAY:
            return TransientError(f"{path}: {error.strerror}")
        case _:
            return PermanentError(f"{path}: {error.strerror or error}")
