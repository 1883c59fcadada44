"""An event log as a file: compressed, with its version and its schema in it, so that it can be read anywhere.

The file is a gzip stream. Its first line is a JSON object: the version of the format, the job, how far the job was, and
the protobuf schema of the records. Each record follows as its length in four bytes and a message ``Envelope`` of that
schema. Records are numbered from 1, as in the log. A file never holds what the job's processes were told in secret:
values of environment variables and parameters of data readers are left out, and passwords in addresses, too.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from elasticdl.shared.bus.ports import KeyValueEntry, LogReader
from elasticdl.shared.bus.reading import present_records
from elasticdl.shared.errors import FormatError, ProtocolError, UserError, file_errors
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.events import Envelope, JobSubmitted, LogRecord
from elasticdl.shared.names import JobId
from elasticdl.shared.storage.atomic import replacing

FORMAT = "elasticdl events"
VERSION = 1
HEADER_BYTES_MAX = 1 << 20
RECORD_BYTES_MAX = 1 << 30
"""The largest record: the specification of a job with a million files has 100 MB."""
HIDDEN = "hidden"
"""What stands in place of a secret."""
_COMPRESSION = 6
_PIECE_BYTES = 1 << 18
_LENGTH = struct.Struct("<I")
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a file says about itself.

    Attributes:
        job: the job's id.
        records: number of records in the file.
        state: the job's state, as the process that ran it knew it; ``running``: whether that process was there.
        message: why the job failed, or empty.
        program: version of the program that wrote the file.
        exported_s: when it was written, seconds since 1970.
        anonymized: whether names and paths were replaced.
    """

    job: JobId
    records: int
    state: str
    running: bool = False
    message: str = ""
    program: str = ""
    exported_s: float = 0.0
    anonymized: bool = False

    def to_line(self) -> bytes:
        """The first line of the file."""
        values = {name: getattr(self, name) for name in self.__slots__}
        schema = base64.b64encode(codec.SCHEMA.file.SerializeToString(deterministic=True)).decode()
        record = {"type": f"{codec.SCHEMA.file.package}.Envelope", "length_bytes": 4, "schema": schema}
        return json.dumps({"format": FORMAT, "version": VERSION, **values, "record": record}).encode() + b"\n"

    @classmethod
    def of_line(cls, line: bytes, path: Path) -> Header:
        """Inverse of ``to_line``. Raises ``UserError``: it is no such line; ``FormatError``: of a newer version."""
        try:
            values: dict[str, Any] = json.loads(line)
            if values["format"] != FORMAT:
                raise ValueError(values["format"])
            version = int(values["version"])
            if version <= VERSION:
                return cls(**{name: values[name] for name in cls.__slots__ if name in values})
        except (ValueError, LookupError, TypeError) as error:
            raise _not_exported(path) from error
        raise FormatError(f"{path} is in version {version} of the format, this program reads up to version {VERSION}")


def without_secrets(envelope: Envelope) -> Envelope:
    """An envelope without what the log holds in confidence: variables, parameters of readers."""
    event = envelope.event
    if not isinstance(event, JobSubmitted):
        return envelope
    spec = event.spec
    spec = replace(
        spec,
        envs=_hidden(spec.envs),
        data=_plain_reader(spec.data),
        validation_data=_plain_reader(spec.validation_data) if spec.validation_data else None,
    )
    return replace(envelope, event=replace(event, spec=_plain_addresses(spec)))


def without_passwords(text: str) -> str:
    """A text without the user and the password of each address in it."""
    return _PASSWORD.sub("", text)


def _plain_addresses(spec: JobSpec) -> JobSpec:
    return replace(spec, storage=_PASSWORD.sub("", spec.storage), output=_PASSWORD.sub("", spec.output))


def _plain_reader(data: DataSpec) -> DataSpec:
    if data.reader is None:
        return data
    reader = replace(data.reader, params=_hidden(data.reader.params), origin=_PASSWORD.sub("", data.reader.origin))
    return replace(data, reader=reader)


def _hidden(values: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict.fromkeys(values, HIDDEN))


async def export(log: LogReader, path: Path, header: Header, change: Callable[[Envelope], Envelope]) -> Header:
    """Write the log as it is now. The file appears when it is complete.

    Args:
        change: what is done to each envelope besides leaving out secrets.

    Returns:
        The header, with the number of records.

    Raises:
        UserError: the file can't be written.
    """
    header = replace(header, records=await log.last_seq())
    with file_errors(f"can't write {path}"), replacing(path) as file, _packing(file) as packed:
        packed.write(header.to_line())
        async for record in present_records(log, until=header.records):
            data = codec.encode_envelope(change(without_secrets(record.envelope)))
            packed.write(_LENGTH.pack(len(data)) + data)
    return header


def _packing(file: IO[bytes]) -> gzip.GzipFile:
    """A stream without name and time, so that the same log gives the same bytes."""
    return gzip.GzipFile(fileobj=file, mode="wb", filename="", compresslevel=_COMPRESSION, mtime=0)


class ExportedLog:
    """A file, read again for each question: an event log that never grows. See ``LogReader``.

    Raises:
        UserError: it can't be read, or is no exported log.
        FormatError: it is of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self.header = Header.of_line(file.readline(HEADER_BYTES_MAX), path)

    async def last_seq(self) -> int:
        """See ``LogReader``."""
        return self.header.records

    async def read(self, after: int) -> AsyncIterator[LogRecord]:
        """See ``LogReader``; ends with the file."""
        for record in self.records(after):
            yield record

    @property
    def content(self) -> str:
        """Identifies what is in the file. Its last eight bytes are the checksum and the length of all of it.

        Raises:
            UserError: it can't be read.
        """
        with file_errors(f"can't read {self.path}"), self.path.open("rb") as file:
            size_bytes = file.seek(0, io.SEEK_END)
            file.seek(max(0, size_bytes - 8))
            return f"{self.header.job} {self.header.records} {size_bytes} {file.read().hex()}"

    def records(self, after: int = 0, wanted: Callable[[bytes], bool] | None = None) -> Iterator[LogRecord]:
        """The records above a number.

        Args:
            wanted: which encoded records to decode; the others are left out. None: all.

        Raises:
            UserError: the file is damaged, or its end is missing.
        """
        for seq, data in enumerate(self._encoded(), 1):
            if seq > after and (wanted is None or wanted(data)):
                yield self._decoded(seq, data)

    def numbered(self, numbers: Collection[int]) -> Iterator[LogRecord]:
        """The records of these numbers. Raises as ``records``."""
        last = max(numbers, default=0)
        for seq, data in zip(range(1, last + 1), self._encoded(), strict=False):
            if seq in numbers:
                yield self._decoded(seq, data)

    def _decoded(self, seq: int, data: bytes) -> LogRecord:
        try:
            return LogRecord(seq=seq, envelope=codec.decode_envelope(data))
        except ProtocolError as error:
            raise UserError(f"record {seq} of {self.path} can't be read: {error}") from error

    def _encoded(self) -> Iterator[bytes]:
        """The records as they are encoded. The file is read in large pieces, because each reading takes a while."""
        with self._opened() as file:
            file.readline(HEADER_BYTES_MAX)
            piece, place, left = b"", 0, self.header.records
            while left:
                if len(piece) - place < _LENGTH.size:
                    piece, place = self._more(file, piece[place:], _LENGTH.size), 0
                end = place + _LENGTH.size + _LENGTH.unpack_from(piece, place)[0]
                if end > len(piece):
                    piece, end, place = self._more(file, piece[place:], end - place), end - place, 0
                yield piece[place + _LENGTH.size : end]
                place, left = end, left - 1

    def _more(self, file: gzip.GzipFile, piece: bytes, size_bytes: int) -> bytes:
        """A piece that begins with ``piece`` and has at least this size."""
        missing = size_bytes - len(piece)
        data = piece + file.read(max(missing, _PIECE_BYTES)) if size_bytes <= RECORD_BYTES_MAX else b""
        if len(data) < size_bytes:
            raise UserError(f"{self.path} is damaged, or its end is missing", hint="Export the log again.")
        return data

    @contextmanager
    def _opened(self) -> Iterator[gzip.GzipFile]:
        try:
            with gzip.open(self.path, "rb") as file:
                yield file
        except gzip.BadGzipFile as error:
            raise _not_exported(self.path) from error
        except (EOFError, zlib.error) as error:
            raise UserError(f"{self.path} is damaged: {error}", hint="Export the log again.") from error
        except OSError as error:
            raise UserError(f"can't read {self.path}: {error.strerror or error}") from error


class NoSnapshots:
    """A file has no core snapshots, so its log is folded from the beginning. See ``ValueReader``."""

    async def read(self, name: str) -> KeyValueEntry | None:
        """See ``ValueReader``."""
        del name
        return None


class ExportedJob:
    """What can be read of a job whose log was exported. See ``JobReader``."""

    def __init__(self, log: ExportedLog) -> None:
        self.log = log
        self.core_snapshots = NoSnapshots()


def _not_exported(path: Path) -> UserError:
    return UserError(f"{path} is not an exported event log", hint="elasticdl events export JOB FILE writes one.")
