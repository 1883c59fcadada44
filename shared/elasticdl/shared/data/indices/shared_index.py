"""Keeps the index of a data set for the next job that reads the same data in the same way.

There is one object for each data set, that is for its paths and the options that read it. It is written after the job's
own index, and replaced when the data changed; then only files that are new or changed are read. It may be deleted at
any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from elasticdl.shared.data.discovery import DataObject, split_paths
from elasticdl.shared.data.indices.former import FormerIndex
from elasticdl.shared.data.indices.packed import IndexFile
from elasticdl.shared.data.indices.store import VERSION, digest_of
from elasticdl.shared.data.schema import DataFormat, ReaderOptions
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage import join, open_store, to_uri

_PART_BYTES = 4 << 20


class SharedIndex:
    """The index of a data set that jobs share.

    Args:
        folder: URI of the folder of shared indices.
        paths: as the user gives them.
        objects: the files that were found there.
        settings: everything else that the indices, types and remarks depend on.
    """

    def __init__(self, folder: str, paths: str, objects: Sequence[DataObject], settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._objects = objects
        name = digest_of([VERSION, [to_uri(path) for path in split_paths(paths)], settings])
        self._uri = join(folder, f"{name}.index")
        self.content = _content(objects)
        """A digest of the names, sizes and etags of all files."""

    @property
    def is_possible(self) -> bool:
        """Whether the files have etags; images in folders have none."""
        return bool(self._folder and self.content)

    def load(self) -> FormerIndex:
        """What a job has saved last, for the files that have not changed since; a damaged object counts as none."""
        with contextlib.suppress(ElasticDLError, OSError):
            if self.is_possible:
                file = self._downloaded()
                is_current = file.facts.get("content") == self.content
                return FormerIndex(file, self._objects, is_current=is_current)
        return FormerIndex(None, self._objects)

    def _downloaded(self) -> IndexFile:
        store = open_store(self._folder)
        with tempfile.TemporaryFile() as file:
            info, begin = store.info(self._uri), 0
            while part := store.read(self._uri, begin, _PART_BYTES, etag=info.etag):
                file.write(part)
                begin += len(part)
            file.flush()
            return IndexFile(os.dup(file.fileno()))

    def save(self, indices: IndexFile) -> None:
        """Save indices with their facts. Storage errors are ignored: the job does not need this copy."""
        with contextlib.suppress(ElasticDLError):
            open_store(self._folder).write(self._uri, indices.path)


def facts_of(options: ReaderOptions) -> dict[str, Any]:
    """Options as JSON."""
    facts = {name: getattr(options, name) for name in ("csv_header", "csv_delimiter", "columns", "class_names")}
    return facts | {"types": dict(options.column_types), "fill": dict(options.fill_missing)}


def _content(objects: Sequence[DataObject]) -> str:
    if any(data.format is DataFormat.IMAGES or not data.info.etag for data in objects):
        return ""
    digest = hashlib.sha256()
    for data in objects:
        digest.update(json.dumps([data.format.value, data.info.uri, data.info.size_bytes, data.info.etag]).encode())
    return digest.hexdigest()
