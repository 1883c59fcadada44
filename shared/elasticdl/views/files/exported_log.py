"""An event log as a file: compressed, with its version and its schema in it, so that it can be read anywhere.

The file consists of gzip streams, which any reader of gzip takes for one. Its first line is a JSON object: the version
of the format, the job, how far the job was, and the protobuf schema of the records. Each record follows as its length
in four bytes and a message ``Envelope`` of that schema. Records are numbered from 1, as in the log. What follows them
saves time only: see ``log_index``. A file never holds what the job's processes were told in secret:
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
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from elasticdl.master.core import State
from elasticdl.shared.bus.ports import EncodedLog, KeyValueEntry, LogReader
from elasticdl.shared.bus.reading import present_records
from elasticdl.shared.bus.stored_events import LastEncoded, whole_record
from elasticdl.shared.errors import FormatError, ProtocolError, UserError, file_errors
from elasticdl.shared.job.spec import DataSpec, JobSpec
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages import codec
from elasticdl.shared.messages.codec import Decode
from elasticdl.shared.messages.events import Envelope, JobResumed, JobSubmitted, LogRecord, MessageUnreadable
from elasticdl.shared.names import MASTER, JobId
from elasticdl.shared.storage.atomic import replacing
from elasticdl.views import core_snapshot
from elasticdl.views.files.log_index import TAIL_BYTES, Indexing, LogIndex, tail

FORMAT = "elasticdl events"
VERSION = 1
HEADER_BYTES_MAX = 1 << 20
RECORD_BYTES_MAX = 1 << 30
"""The largest record: the specification of a job with a million files has 100 MB."""
HIDDEN = "hidden"
"""What stands in place of a secret."""
_COMPRESSION = 1
"""The fastest level: level 6 takes four times as long, and the file has a fifth less."""
_PIECE_BYTES = 1 << 18
_WITH_SECRETS = (JobSubmitted, JobResumed)
_READ_WHOLE = (*_WITH_SECRETS, MessageUnreadable)
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
    if isinstance(event, JobSubmitted):
        return replace(envelope, event=replace(event, spec=_plain_spec(event.spec)))
    if isinstance(event, JobResumed):
        return replace(envelope, event=replace(event, output=without_passwords(event.output)))
    return envelope


def snapshot_without_secrets(state: State, data: bytes = b"") -> bytes:
    """The core snapshot of a state as it follows from the records without secrets; ``data``: the one with them."""
    spec, output = _plain_spec(state.spec) if state.spec else None, without_passwords(state.new_output)
    if data and (spec, output) == (state.spec, state.new_output):
        return data
    return core_snapshot.encode(replace(state, spec=spec, new_output=output))


def without_passwords(text: str) -> str:
    """A text without the user and the password of each address in it."""
    return _PASSWORD.sub("", text)


def _plain_spec(spec: JobSpec) -> JobSpec:
    return replace(
        spec,
        envs=_hidden(spec.envs),
        data=_plain_reader(spec.data),
        validation_data=_plain_reader(spec.validation_data) if spec.validation_data else None,
        storage=without_passwords(spec.storage),
        output=without_passwords(spec.output),
    )


def _plain_reader(data: DataSpec) -> DataSpec:
    if data.reader is None:
        return data
    reader = replace(data.reader, params=_hidden(data.reader.params), origin=without_passwords(data.reader.origin))
    return replace(data, reader=reader)


def _hidden(values: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict.fromkeys(values, HIDDEN))


async def export(
    log: LogReader,
    path: Path,
    header: Header,
    change: Callable[[Envelope], Envelope] | None,
    indexing: Indexing | None = None,
    decode: Decode = codec.decode_envelope,
) -> Header:
    """Write the log as it is now. The file appears when it is complete.

    Args:
        change: what is done to each envelope besides leaving out secrets; None: nothing.
        indexing: makes the index; None: of the records alone.
        decode: of a log that is read as it is encoded; reads all that ``change`` and ``indexing`` need.

    Returns:
        The header, with the number of records.

    Raises:
        UserError: the file can't be written.
    """
    header = replace(header, records=await log.last_seq())
    indexing = indexing or Indexing()
    with file_errors(f"can't write {path}"), replacing(path) as file:
        _pack(file, header.to_line())
        block, next_block, length_of = bytearray(), 1, _LENGTH.pack
        async for some in _with_bytes(log, header.records, decode):
            for read, stored in some:
                if read.seq == next_block:
                    _pack(file, block)
                    block.clear()
                    next_block = indexing.begin_block(read.seq, file.tell())
                record, data = read, stored
                if change is not None or type(read.envelope.event) in _WITH_SECRETS:
                    record = changed(read, change)
                    data = stored if record is read else codec.encode_envelope(record.envelope)
                indexing.take(record)
                block += length_of(len(data))
                block += data
        _pack(file, block)
        place = file.tell()
        _pack(file, indexing.finish().to_bytes())
        file.write(tail(place))
    return header


async def _with_bytes(log: LogReader, until: int, decode: Decode) -> AsyncIterator[Iterable[tuple[LogRecord, bytes]]]:
    """The records until a present one, some at a time, each with its encoded envelope.

    One from which an export leaves something out, or that this version can't read, is read whole.
    """
    if isinstance(log, EncodedLog):
        seq = 0
        async for some in log.encoded(0, until):
            yield (_with_its_bytes(number, data, decode) for number, data in enumerate(some, seq + 1))
            seq += len(some)
        return
    last = LastEncoded(codec.decode_envelope)
    async for record in present_records(log, until=until, decode=last.decode):
        yield ((record, last.encode(record.envelope)),)


def _with_its_bytes(seq: int, data: bytes, decode: Decode) -> tuple[LogRecord, bytes]:
    record = whole_record(seq, data, decode)
    if type(record.envelope.event) in _READ_WHOLE:
        record = whole_record(seq, data, codec.decode_envelope)
        return record, codec.encode_envelope(record.envelope)
    return record, data


def changed(record: LogRecord, change: Callable[[Envelope], Envelope] | None) -> LogRecord:
    """A record as it stands in the file."""
    envelope = without_secrets(record.envelope)
    if change is not None:
        envelope = change(envelope)
    return record if envelope is record.envelope else LogRecord(seq=record.seq, envelope=envelope)


def _pack(file: IO[bytes], data: bytes | bytearray) -> None:
    """Write data as a gzip stream without name and time, so that the same log gives the same bytes."""
    if data:
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", compresslevel=_COMPRESSION, mtime=0) as packed:
            packed.write(data)


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

    async def read(
        self, after: int, decode: Decode = codec.decode_envelope, until: int = 0
    ) -> AsyncIterator[LogRecord]:
        """See ``LogReader``; ends with the file."""
        for record in self.records(after, decode, until):
            yield record

    @cached_property
    def index(self) -> LogIndex:
        """Where its records are, and core snapshots; an empty one if it has none."""
        with file_errors(f"can't read {self.path}"), self.path.open("rb") as file:
            return LogIndex.of_file(file)

    @property
    def content(self) -> str:
        """Identifies what is in the file. Its index, or all of it, ends with a checksum and a length.

        Raises:
            UserError: it can't be read.
        """
        with file_errors(f"can't read {self.path}"), self.path.open("rb") as file:
            size_bytes = file.seek(0, io.SEEK_END)
            file.seek(max(0, size_bytes - TAIL_BYTES - 8))
            return f"{self.header.job} {self.header.records} {size_bytes} {file.read().hex()}"

    def records(self, after: int = 0, decode: Decode = codec.decode_envelope, until: int = 0) -> Iterator[LogRecord]:
        """The records above a number.

        Args:
            decode: see ``codec.envelope_decoder``.
            until: number of the last one; 0: all.

        Raises:
            UserError: the file is damaged, or its end is missing.
        """
        for seq, data in self._encoded(after + 1, until or self.header.records):
            yield self._decoded(seq, data, decode)

    def about(self, task: TaskRef) -> Iterator[LogRecord]:
        """All records that may be about a task, and some others. Raises as ``records``."""
        wanted, blocks = codec.may_be_about(task), self.index.blocks
        ranges = [
            (block.first, following.first - 1 if following else self.header.records)
            for block, following in zip_longest(blocks, blocks[1:])
            if block.mentions.has(task)
        ]
        for first, last in ranges if blocks else ((1, self.header.records),):
            for seq, data in self._encoded(first, last):
                if wanted(data):
                    yield self._decoded(seq, data, codec.decode_envelope)

    def numbered(self, numbers: Collection[int]) -> Iterator[LogRecord]:
        """The records of these numbers. Raises as ``records``."""
        for _, group in groupby(sorted(numbers), key=self.index.block_of):
            wanted = list(group)
            for seq, data in self._encoded(wanted[0], wanted[-1]):
                if seq in wanted:
                    yield self._decoded(seq, data, codec.decode_envelope)

    def _decoded(self, seq: int, data: bytes, decode: Decode) -> LogRecord:
        try:
            return LogRecord(seq=seq, envelope=decode(data))
        except ProtocolError as error:
            raise UserError(f"record {seq} of {self.path} can't be read: {error}") from error

    def _encoded(self, seq: int, last: int) -> Iterator[tuple[int, bytes]]:
        """The records from one on until another, with their numbers, as they are encoded.

        The file is read in large pieces, because each reading takes a while.
        """
        block, unpack, head = self.index.block_of(seq), _LENGTH.unpack_from, _LENGTH.size
        with self._opened(block.place if block else 0) as file:
            if block is None:
                file.readline(HEADER_BYTES_MAX)
            piece, place = b"", 0
            for number in range(block.first if block else 1, last + 1):
                if len(piece) - place < head:
                    piece, place = self._more(file, piece[place:], head), 0
                end = place + head + unpack(piece, place)[0]
                if end > len(piece):
                    piece, end, place = self._more(file, piece[place:], end - place), end - place, 0
                if number >= seq:
                    yield number, piece[place + head : end]
                place = end

    def _more(self, file: gzip.GzipFile, piece: bytes, size_bytes: int) -> bytes:
        """A piece that begins with ``piece`` and has at least this size."""
        missing = size_bytes - len(piece)
        data = piece + file.read(max(missing, _PIECE_BYTES)) if size_bytes <= RECORD_BYTES_MAX else b""
        if len(data) < size_bytes:
            raise UserError(f"{self.path} is damaged, or its end is missing", hint="Export the log again.")
        return data

    @contextmanager
    def _opened(self, place: int = 0) -> Iterator[gzip.GzipFile]:
        """The file from a gzip stream on that begins at this place."""
        try:
            with self.path.open("rb") as packed:
                packed.seek(place)
                with gzip.GzipFile(fileobj=packed) as file:
                    yield file
        except gzip.BadGzipFile as error:
            raise _not_exported(self.path) from error
        except (EOFError, zlib.error) as error:
            raise UserError(f"{self.path} is damaged: {error}", hint="Export the log again.") from error
        except OSError as error:
            raise UserError(f"can't read {self.path}: {error.strerror or error}") from error


class ExportedSnapshots:
    """The core snapshots in a file. See ``ValueReader``.

    Args:
        until: number of the last record that the one to read may have seen; 0: any.
    """

    def __init__(self, log: ExportedLog, until: int) -> None:
        self._log = log
        self._until = until

    async def read(self, name: str) -> KeyValueEntry | None:
        """See ``ValueReader``."""
        data = self._log.index.snapshot_before(self._until) if name == MASTER else None
        return KeyValueEntry(value=data, seq=1) if data is not None and core_snapshot.is_current(data) else None


class ExportedJob:
    """What can be read of a job whose log was exported, until a record (0: all). See ``JobReader``."""

    def __init__(self, log: ExportedLog, until: int = 0) -> None:
        self.log = log
        self.core_snapshots = ExportedSnapshots(log, until)


def _not_exported(path: Path) -> UserError:
    return UserError(f"{path} is not an exported event log", hint="elasticdl events export JOB FILE writes one.")
