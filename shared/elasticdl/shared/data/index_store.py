"""Stores indexes with the job's snapshots, never in the folders of the user's data."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial

import numpy as np

from elasticdl.shared.data.discovery import DataObject
from elasticdl.shared.data.index import SourceIndex, scan_source
from elasticdl.shared.data.schema import ReaderOptions, options_of, schema_of
from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import DataSpec
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, for_each, join, open_store

_VERSION = 2
"""Changes whenever the record hash or the layout does."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, TypeError, EOFError)
"""Errors that numpy and JSON raise for a damaged file."""


def to_bytes(index: SourceIndex) -> bytes:
    """A numpy ``.npz`` archive: three arrays and a JSON header; 24 bytes per mark."""
    header = {
        "version": _VERSION,
        "number": index.number,
        "source": asdict(index.source),
        "names": index.names,
        "files": index.files,
    }
    file = io.BytesIO()
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(file, header=text, marks=index.marks, positions=index.positions, sums=index.sums)
    return file.getvalue()


def from_bytes(data: bytes) -> SourceIndex:
    """Inverse of ``to_bytes``."""
    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        header = json.loads(archive["header"].tobytes())
        return SourceIndex(
            number=header["number"],
            source=Source(**header["source"]),
            names=tuple(header["names"]),
            marks=archive["marks"],
            positions=archive["positions"],
            sums=archive["sums"],
            files=tuple(header.get("files", ())),
        )


class IndexLostError(PermanentError):
    """An index was not saved, or can't be read any more; ``elasticdl resume`` builds it again."""


class IndexStore:
    """Saves and loads indexes by their source and options.

    Args:
        store: holds the run's objects.
        prefix: the run's, or one of its own below it.
    """

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    @classmethod
    def of_job(cls, storage: str) -> IndexStore:
        """The store of a job's indexes.

        Args:
            storage: URI of the job's storage.
        """
        return cls(open_store(storage), join(storage, "index"))

    def save(self, index: SourceIndex, options: ReaderOptions) -> None:
        """Save an index."""
        self._store.write(self._uri(index.source, index.number, options), to_bytes(index))

    def save_all(self, indices: Sequence[SourceIndex], options: ReaderOptions) -> None:
        """Save many indexes; an object store, or a disk that makes each file durable, takes several at a time."""
        for _ in for_each(indices, partial(self.save, options=options)):
            pass

    def load(self, source: Source, number: int, options: ReaderOptions) -> SourceIndex:
        """The index of a source of the plan.

        Raises:
            IndexLostError: it is not there, or damaged.
        """
        uri = self._uri(source, number, options)
        try:
            return from_bytes(self._store.read(uri))
        except ObjectNotFoundError as error:
            raise IndexLostError(f"the index of {display(source.uri)} is not in {display(self._prefix)}") from error
        except _UNREADABLE as error:
            raise IndexLostError(f"the index of {display(source.uri)}, {display(uri)}, is damaged") from error

    def is_same(self, source: Source, number: int, data: DataSpec, now: ObjectInfo) -> bool:
        """Whether an object whose etag changed has the content of a source.

        The object is read once per job: the result is saved beside the index.

        Args:
            source: as it was when the job was planned.
            number: its number in the plan.
            data: how it is read.
            now: the object as it is.

        Raises:
            IndexLostError: there is no index to compare with.
        """
        if now.size_bytes != source.size_bytes:
            return False
        options = options_of(data)
        mark = self._uri(source, number, options) + "." + hashlib.sha256(now.etag.encode()).hexdigest()[:16]
        if any(True for _ in self._store.list(mark)):
            return True
        planned = self.load(source, number, options)
        found = DataObject(info=now, format=schema_of(data).format)
        try:
            index = scan_source(open_store(source.uri), found, number, options).index
        except UserError:
            return False
        if not index.has_content_of(planned):
            return False
        self._store.write(mark, b"")
        return True

    def _uri(self, source: Source, number: int, options: ReaderOptions) -> str:
        info = ObjectInfo(uri=source.uri, size_bytes=source.size_bytes, etag=source.etag)
        how = [options.csv_header, options.csv_delimiter, options.columns]
        facts = json.dumps([_VERSION, asdict(info), number, how], sort_keys=True)
        return join(self._prefix, hashlib.sha256(facts.encode()).hexdigest()[:32] + ".npz")
