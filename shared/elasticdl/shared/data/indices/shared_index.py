"""Keeps the index of a data set for the next job that reads the same data in the same way.

There is one object for each data set, that is for its paths and the options that read it. It is written after the job's
own index, and replaced when the data changed; then only files that are new or changed are read. It may be deleted at
any time: jobs have copies of their own.

An object's name has the day, in UTC, on which a job has last used it. After a day on which no job has used it, the next
one renames it. A client that writes or renames an index removes those that it replaces, and those of other data sets
that no job has used for 90 days.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from elasticdl.shared.data.discovery import split_paths
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.index import ScannedSource
from elasticdl.shared.data.indices import columns
from elasticdl.shared.data.indices.packed import IndexFile
from elasticdl.shared.data.indices.store import VERSION, digest_of
from elasticdl.shared.data.schema import ReaderOptions
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.sources import Source
from elasticdl.shared.storage import (
    ObjectChangedError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    join,
    open_store,
    remove_abandoned,
    to_uri,
)

UNUSED_DAYS_MAX = 90
"""An index that no job has used for so long is removed."""
_ABANDONED_S = 86_400.0
"""Age of a file that a killed client was writing."""
_PART_BYTES = 4 << 20
_LOAD_TRIES = 2
_RENAMED_ERRORS = (ObjectNotFoundError, ObjectChangedError)
"""Another client has renamed the index, because it uses it today, or replaced it."""
_NAME = re.compile(r"[0-9a-f]{32}\.(\d{4}-\d\d-\d\d)\.index")


class SharedIndex:
    """A data set's index that jobs share; ``settings``: all else that indices, types and remarks depend on."""

    def __init__(self, folder: str, paths: str, objects: Sequence[DataObject], settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._name = digest_of([VERSION, columns.FIELDS, [to_uri(path) for path in split_paths(paths)], settings])
        self._current_uri = ""
        self.content = _content(objects)
        """A digest of the names, sizes and etags of all files."""

    @property
    def is_possible(self) -> bool:
        """Whether the files have etags; files in folders have none."""
        return bool(self._folder and self.content)

    def load(self, objects: Sequence[DataObject]) -> PreviousIndex:
        """What a job has saved last, for the files that have not changed since; a damaged object counts as none."""
        for _ in range(_LOAD_TRIES if self.is_possible else 0):
            with contextlib.suppress(*_RENAMED_ERRORS):
                return self._loaded(objects)
        return PreviousIndex(None, objects)

    def _loaded(self, objects: Sequence[DataObject]) -> PreviousIndex:
        try:
            store = open_store(self._folder)
            found = [info for info in store.list(join(self._folder, f"{self._name}.")) if _used_on(info.uri)]
            if found:
                newest = max(found, key=lambda info: _used_on(info.uri))
                file = _downloaded(store, newest)
                is_current = file.facts.get("content") == self.content
                previous = PreviousIndex(file, objects, is_current=is_current)
                self._current_uri = newest.uri if is_current else ""
                return previous
        except _RENAMED_ERRORS:
            raise
        except (ElasticDLError, OSError):
            pass
        return PreviousIndex(None, objects)

    def save(self, indices: IndexFile) -> None:
        """Save indices with their facts, or note that they are used today if they are those that ``load`` found.

        Removes what nothing uses any more. Storage errors are ignored: the job does not need this copy.
        """
        today = datetime.now(UTC).date()
        uri = join(self._folder, f"{self._name}.{today.isoformat()}.index")
        if self._current_uri == uri:
            return
        with contextlib.suppress(ElasticDLError):
            store = open_store(self._folder)
            if self._current_uri:
                store.move(self._current_uri, uri)
            else:
                store.write(uri, indices.path)
            oldest = (today - timedelta(days=UNUSED_DAYS_MAX)).isoformat()
            for info in list(store.list(self._folder + "/")):
                used_on = _used_on(info.uri)
                is_replaced = info.uri != uri and info.uri.startswith(join(self._folder, f"{self._name}."))
                if used_on and (is_replaced or used_on < oldest):
                    store.delete(info.uri)
            remove_abandoned(self._folder, _ABANDONED_S)


def _used_on(uri: str) -> str:
    """The day on which a job has last used a shared index; empty: the object is not an index."""
    match = _NAME.fullmatch(uri.rpartition("/")[2])
    return match[1] if match else ""


def _downloaded(store: ObjectStore, info: ObjectInfo) -> IndexFile:
    with tempfile.TemporaryFile() as file:
        begin = 0
        while part := store.read(info.uri, begin, _PART_BYTES, etag=info.etag):
            file.write(part)
            begin += len(part)
        file.flush()
        return IndexFile(os.dup(file.fileno()))


def facts_of(options: ReaderOptions) -> dict[str, Any]:
    """Options as JSON."""
    facts = {
        name: getattr(options, name)
        for name in ("csv_header", "csv_delimiter", "columns", "column_order", "class_names")
    }
    return facts | {"types": dict(options.column_types), "fill": dict(options.fill_missing)}


def _content(objects: Sequence[DataObject]) -> str:
    if any(FORMATS[data.format].records_are_files or not data.info.etag for data in objects):
        return ""
    digest = hashlib.sha256()
    for data in objects:
        digest.update(json.dumps([data.format, data.info.uri, data.info.size_bytes, data.info.etag]).encode())
    return digest.hexdigest()


class PreviousIndex:
    """The index of a data set as a former job read it, beside the files of that data set as they are now.

    A file is unchanged if its name, size and etag are the same, and also its number in the data set, which is a part of
    the hash of each of its records.

    Args:
        file: the index; None: there is none.

    Raises:
        IndexLostError: the index is damaged, or does not say what was found in the columns.
    """

    def __init__(self, file: IndexFile | None, objects: Sequence[DataObject], *, is_current: bool = False) -> None:
        self.file = file
        self.is_current = is_current
        self._is_kept = bytearray(len(objects))
        self.changed: Sequence[int] = range(len(objects))
        """Numbers of the files that it does not have as they are."""
        if file is None:
            return
        if is_current:
            file.check()
            self.changed = ()
            return
        for number, (data, scanned) in enumerate(zip(objects, file.scanned(), strict=False)):
            self._is_kept[number] = _is_same(data, scanned.index.source)
        if any(self._is_kept):
            self.changed = [number for number, is_kept in enumerate(self._is_kept) if not is_kept]

    def joined(self, scanned: Iterable[ScannedSource]) -> Iterator[ScannedSource]:
        """All files in their order; ``scanned``: those that have changed, in their order."""
        others = iter(scanned)
        if self.file is None or len(self.changed) == len(self._is_kept):
            yield from others
            return
        kept = self.file.scanned()
        for is_kept in self._is_kept:
            former = next(kept, None)
            if is_kept and former is not None:
                yield former
            else:
                yield next(others)


def _is_same(data: DataObject, source: Source) -> bool:
    return (data.info.uri, data.info.size_bytes, data.info.etag) == (source.uri, source.size_bytes, source.etag)
