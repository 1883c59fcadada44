"""Files in folders: a record is a file, and the folder that it is in is its class.

All files of a data set are put in the order of a hash of their names, which mixes the classes, and the list is cut into
sources. The index of a source has the names of its files and a mark at each record, so a reader compares every file
with the planning. See ADR 21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from elasticdl.shared.data.blocks import ColumnBatch, RecordBlock
from elasticdl.shared.data.column_types import FoundColumn, selected
from elasticdl.shared.data.formats.data_format import DataFormat, DataObject, FormatReader, Indices, Scan
from elasticdl.shared.data.formats.segments import Segment, changed
from elasticdl.shared.data.hashing import bind, content_hashes
from elasticdl.shared.data.schema import DataSchema, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Shard, Source
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, for_each, scheme_of

_TYPES = {"label": "int64", "class": "string", "file": "string"}
"""Columns beside the content of the file: number and name of its class, and its name below the common folder."""
FILES_MAX = 4096
"""Files of a source. A worker loads the lists of the sources that it reads from."""
_CHUNK_FILES = 256
_CLASSES_SHOWN = 10


def _folder(uri: str) -> str:
    return uri.rpartition("/")[0]


def _common_folder(folders: set[str]) -> str:
    parts = [folder.split("/") for folder in (min(folders), max(folders))]
    same = 0
    while same < min(map(len, parts)) and parts[0][same] == parts[1][same]:
        same += 1
    return "/".join(parts[0][:same])


def _class_name(root: str, file: str) -> str:
    """The name of the folder that a file is in; ``root``: URI of the common folder."""
    return display(_folder(f"{root}/{file}")).rpartition("/")[2]


def _root_of(uri: str) -> str:
    """The common folder of a source's files, from its URI ``FOLDER[START:END]``."""
    return uri.rpartition("[")[0]


class Content(Protocol):
    """What the files are.

    Attributes:
        column: name of the column of their content.
        type: of that column.
    """

    column: str
    type: str

    @property
    def types(self) -> dict[str, str]:
        """The types of all columns, in their order."""
        return {self.column: self.type, **_TYPES}

    def problem(self, content: bytes) -> str:
        """What is wrong with the content of a file, to be said behind its name; empty: nothing."""
        ...

    def value(self, content: bytes) -> object:
        """The value of the column."""
        ...


class _Scan(Scan):
    """Every file of a source in order; positions count the bytes of the files before."""

    def __init__(
        self, content: Content, store: ObjectStore, uri: str, files: Sequence[str], options: ReaderOptions
    ) -> None:
        self._content = content
        self._store = store
        root = _root_of(uri)
        self._uris = [f"{root}/{file}" for file in files]
        for file in files:
            if (name := _class_name(root, file)) not in options.class_names:
                raise UserError(
                    f"{display(f'{root}/{file}')} is in the folder {name!r}, which is no class of the training "
                    f"data ({', '.join(options.class_names[:_CLASSES_SHOWN])})",
                    hint="Validation data has the classes of the training data, or some of them.",
                )
        self._columns = tuple(self._column(name, options) for name in selected(uri, [*content.types], options))

    @property
    def columns(self) -> tuple[FoundColumn, ...]:
        return self._columns

    def __iter__(self) -> Iterator[Segment]:
        position = 0
        for start in range(0, len(self._uris), _CHUNK_FILES):
            uris = self._uris[start : start + _CHUNK_FILES]
            contents = _contents(self._store, uris)
            for uri, content in zip(uris, contents, strict=True):
                if problem := self._content.problem(content):
                    raise UserError(f"{display(uri)} {problem}", hint="Remove it, or write it again.")
            ends = position + np.cumsum([len(content) for content in contents])
            positions = np.concatenate([[position], ends[:-1]])
            position = int(ends[-1])
            yield Segment(contents=content_hashes(contents), positions=positions, end=position)

    def _column(self, name: str, options: ReaderOptions) -> FoundColumn:
        types = self._content.types
        given = options.column_types.get(name, types[name])
        if given != types[name]:
            raise UserError(
                f"--column_types {name}={given}: the column of such files is {types[name]}",
                hint="Convert it in the model's feed.",
                usage=True,
            )
        return FoundColumn(name=name, type=given)


def _contents(store: ObjectStore, uris: Sequence[str]) -> list[bytes]:
    """The content of each file; those of an object store are requested together."""
    if scheme_of(uris[0]) != "s3":
        return [store.read(uri) for uri in uris]
    return list(for_each(uris, store.read))


def _objects(values: Sequence[object]) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


class _Reader(FormatReader):
    """Reads files, and compares each with the index."""

    def __init__(self, content: Content, store: ObjectStore, schema: DataSchema, index: Indices) -> None:
        self._content = content
        self._store = store
        self._schema = schema
        self._index = index
        self._labels = {name: label for label, name in enumerate(schema.class_names)}

    def read(self, info: ObjectInfo, shard: Shard) -> RecordBlock:
        index, root = self._index(shard.source), _root_of(info.uri)
        files = index.files[shard.start : shard.end]
        try:
            contents = _contents(self._store, [f"{root}/{file}" for file in files])
        except ObjectNotFoundError as error:
            raise changed(error.uri) from error
        hashes = bind(content_hashes(contents), shard.source, shard.start)
        wrong = np.flatnonzero(hashes != np.diff(index.sums[shard.start : shard.end + 1]))
        if wrong.size:
            raise changed(f"{root}/{files[wrong[0]]}")
        return RecordBlock(lines=None, hashes=hashes, parse=partial(self._columns, root, files, contents))

    def _columns(self, root: str, files: Sequence[str], contents: list[bytes]) -> ColumnBatch:
        names = [_class_name(root, file) for file in files]
        found: dict[str, npt.NDArray[Any]] = {
            self._content.column: _objects([self._content.value(content) for content in contents]),
            "label": np.array([self._labels[name] for name in names], np.int64),
            "class": _objects(names),
            "file": _objects([display(f"{root}/{file}")[len(display(root)) + 1 :] for file in files]),
        }
        return ColumnBatch.of({column.name: found[column.name] for column in self._schema.columns})


class FilesInFolders(DataFormat):
    """Files in folders. A source is ``FOLDER[START:END]`` of the list of all files.

    Its size is that of its files, and its etag a digest of their names, sizes and etags. ``DataObject.files`` are
    quoted as in URIs.
    """

    has_one_object = False
    records_are_files = True
    stride = 1

    def __init__(self, name: str, title: str, extensions: tuple[str, ...], content: Content) -> None:
        self.name, self.title, self.extensions = name, title, extensions
        self._content = content

    def sources(self, store: ObjectStore, files: list[DataObject]) -> list[DataObject]:
        """See ``DataFormat``."""
        infos = [file.info for file in files]
        folders = {_folder(info.uri) for info in infos}
        root = _common_folder(folders)
        if len(folders) == 1:
            root = _folder(root)  # So that the names below it have the name of the only class.
        ordered = sorted(infos, key=lambda info: (xxh3_64_intdigest(info.uri[len(root) :].encode()), info.uri))
        found = []
        for start in range(0, len(ordered), FILES_MAX):
            part = ordered[start : start + FILES_MAX]
            facts = "\n".join(f"{info.uri[len(root) :]} {info.size_bytes} {info.etag}" for info in part)
            source = ObjectInfo(
                uri=f"{root}[{start}:{start + len(part)}]",
                size_bytes=sum(info.size_bytes for info in part),
                etag=xxh3_64_hexdigest(facts.encode()),
            )
            names = tuple(info.uri[len(root) + 1 :] for info in part)
            found.append(DataObject(info=source, format=self.name, files=names))
        return found

    def info(self, store: ObjectStore, source: Source) -> ObjectInfo:
        """As it was: files are compared one by one when they are read."""
        return ObjectInfo(uri=source.uri, size_bytes=source.size_bytes, etag=source.etag)

    def completed(self, store: ObjectStore, sources: Sequence[DataObject], options: ReaderOptions) -> ReaderOptions:
        """With the classes in the order of their labels."""
        classes = {_class_name(_root_of(source.info.uri), file) for source in sources for file in source.files}
        return replace(options, class_names=tuple(sorted(classes)))

    def scan(self, store: ObjectStore, data: DataObject, options: ReaderOptions) -> Scan:
        """See ``DataFormat``."""
        return _Scan(self._content, store, data.info.uri, data.files, options)

    def reader(self, store: ObjectStore, schema: DataSchema, index: Indices) -> FormatReader:
        """See ``DataFormat``."""
        return _Reader(self._content, store, schema, index)
