"""A fleet's log as a file: a gzip stream of lines that grows while the controller runs."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from elasticdl.controller.core import Policy, View
from elasticdl.controller.history.records import Record, policy_of, record_of
from elasticdl.shared.errors import ElasticDLError, ProtocolError, UserError, file_errors

_HINT = "The controller writes one with --fleet_log, and fleet simulate with --record."
FORMER_SUFFIX = ".1"
FILE_BYTES_MAX = 64 << 20
"""A larger file is renamed, and the next one begins with the whole view."""


class LogFile:
    """A file to append to. An existing one is renamed first: ``.1`` is added to its name.

    Each line can be read as soon as ``append`` returns.

    Raises:
        OSError: the file can't be written; likewise each method.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            os.replace(path, path.with_name(path.name + FORMER_SUFFIX))
        self._path = path
        # Without a time, the same lines make the same file.
        self._file = gzip.GzipFile(path, "wb", mtime=0)

    @property
    def is_full(self) -> bool:
        """Whether another file is due."""
        return self._path.stat().st_size > FILE_BYTES_MAX

    def append(self, line: str) -> None:
        """Add a line."""
        self._file.write(line.encode())
        self._file.flush()

    def close(self) -> None:
        """Write the end."""
        self._file.close()


def read_log(path: Path) -> tuple[Policy, Iterator[Record]]:
    """The policy and the records of a log. One that is still written, or was cut off, ends with its last whole line.

    Raises:
        UserError: the file can't be read, or is no log of a fleet; likewise the iterator.
        FormatError: it is the log of a later version.
    """
    lines = _lines(path)
    try:
        return policy_of(next(lines, ""), str(path)), _records(lines, path)
    except ProtocolError as error:
        raise UserError(str(error), hint=_HINT) from error


class GrowingLog:
    """A log that is read while a controller writes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin(inode=0)

    def _begin(self, inode: int) -> None:
        self._inode, self._offset = inode, 0
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._rest = b""
        self._fault: ElasticDLError | None = None
        """Why nothing more is read of this file."""
        self._view: View | None = None
        self._number = 0

    def read(self) -> tuple[list[Record], bool]:
        """What is new, and whether another file took the place of the former one, which begins with the whole view.

        Raises:
            UserError: the file can't be read, or is no log of a fleet.
            FormatError: it is the log of a later version.
        """
        if self._inode and not self._path.exists():
            return [], False  # The controller puts a large one aside before it begins the next one.
        with file_errors(f"{self._path} can't be read"), self._path.open("rb") as file:
            found = os.fstat(file.fileno())
            is_other = self._inode not in (0, found.st_ino) or found.st_size < self._offset
            if is_other or not self._inode:
                self._begin(found.st_ino)
            if self._fault is not None:
                raise self._fault
            file.seek(self._offset)
            packed = file.read()
        self._offset += len(packed)
        try:
            return list(self._unpacked(packed)), is_other
        except ElasticDLError as error:
            self._fault = error
            raise

    def _unpacked(self, packed: bytes) -> Iterator[Record]:
        try:
            *lines, self._rest = (self._rest + self._unpacker.decompress(packed)).split(b"\n")
        except zlib.error as error:
            raise UserError(f"{self._path} is no log of a fleet", hint=_HINT) from error
        try:
            for line in lines:
                if self._view is None:
                    policy_of(line.decode(), str(self._path))
                    self._view = View()
                    continue
                self._number += 1
                record = record_of(line.decode(), self._view, f"record {self._number} of {self._path}")
                self._view.apply(record.changes)
                yield record
        except (ProtocolError, UnicodeDecodeError) as error:
            raise UserError(str(error), hint=_HINT) from error


def _records(lines: Iterator[str], path: Path) -> Iterator[Record]:
    view = View()
    for number, line in enumerate(lines, 1):
        try:
            record = record_of(line, view, f"record {number} of {path}")
        except ProtocolError as error:
            raise UserError(str(error)) from error
        view.apply(record.changes)
        yield record


def _lines(path: Path) -> Iterator[str]:
    with file_errors(f"{path} can't be read"), path.open("rb") as file:
        try:
            for line in gzip.GzipFile(fileobj=file):
                if line.endswith(b"\n"):
                    yield line.decode()
        except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError):
            return
