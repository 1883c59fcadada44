"""Stores indices with the job's snapshots, never in the folders of the user's data."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict

from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.index import SourceIndex, scan_source
from elasticdl.shared.data.indices.packed import IndexFile, IndexLostError, PackedIndices, pack
from elasticdl.shared.data.schema import ReaderOptions, options_of, schema_of
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.sources import Source
from elasticdl.shared.job.spec import DataSpec
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, join, open_store

VERSION = 1
"""Changes whenever the record hash, the layout, or what is said of columns does."""


class IndexStore:
    """Saves and loads the indices of one data set, all in one object; any thread may call."""

    def __init__(self, store: ObjectStore, prefix: str, sources: Sequence[Source], options: ReaderOptions) -> None:
        self._store = store
        self._prefix = prefix
        self._sources = sources
        self._options = options
        self._settings = [options.csv_header, options.csv_delimiter, options.columns]
        self._uri = join(prefix, digest_of([VERSION, Source.digest_of(sources), self._settings]) + ".index")
        self._lock = threading.Lock()
        self._opened: PackedIndices | None = None

    @classmethod
    def of_job(cls, storage: str, sources: Sequence[Source], options: ReaderOptions) -> IndexStore:
        """The store of the indices of a job's data set."""
        return cls(open_store(storage), join(storage, "index"), sources, options)

    def save(self, indices: Sequence[SourceIndex]) -> None:
        """Save the indices of all sources."""
        file = indices if isinstance(indices, IndexFile) else pack(indices)
        self._store.write(self._uri, file.path)
        with self._lock:
            self._opened = None

    def load(self, number: int) -> SourceIndex:
        """The index of a source. Raises ``IndexLostError``: it is not there, or damaged."""
        index: SourceIndex = self.load_all()[number]
        return index

    def load_all(self) -> PackedIndices:
        """The indices of all sources, of which parts are read when they are needed.

        Raises:
            IndexLostError: they are not there, or damaged; also when a part is read.
        """
        with self._lock:
            if self._opened is None:
                what = display(self._sources[0].uri) if self._sources else "no file"
                if len(self._sources) > 1:
                    what += f" and {len(self._sources) - 1:,} more"
                name = f"the index of {what}, {display(self._uri)},"
                try:
                    size_bytes = self._store.info(self._uri).size_bytes
                    opened = PackedIndices(self._read, size_bytes, name)
                except ObjectNotFoundError as error:
                    raise IndexLostError(f"the index of {what} is not in {display(self._prefix)}") from error
                if len(opened) != len(self._sources):
                    raise IndexLostError(f"{name} is damaged")
                self._opened = opened
            return self._opened

    def is_same(self, number: int, data: DataSpec, now: ObjectInfo) -> bool:
        """Whether an object whose etag changed has the content of a source.

        The object is read once per job: the result is saved beside the index.

        Raises:
            IndexLostError: there is no index to compare with.
        """
        source = self._sources[number]
        if now.size_bytes != source.size_bytes:
            return False
        mark = join(self._prefix, f"same-{digest_of([VERSION, asdict(source), number, self._settings, now.etag])}")
        if any(True for _ in self._store.list(mark)):
            return True
        planned = self.load(number)
        found = DataObject(info=now, format=schema_of(data).format)
        try:
            index = scan_source(open_store(source.uri), found, number, options_of(data)).index
        except UserError:
            return False
        if not index.has_content_of(planned):
            return False
        self._store.write(mark, b"")
        return True

    def _read(self, begin: int, length: int) -> bytes:
        try:
            return self._store.read(self._uri, begin, length)
        except ObjectNotFoundError as error:
            raise IndexLostError(f"{display(self._uri)} was deleted") from error


def digest_of(facts: object) -> str:
    """A name for what JSON values describe: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
