"""Images in folders: a record is a file, and the folder that it is in is its class.

All files of a data set are put in the order of a hash of their names, which mixes the classes, and the list is cut into
sources. The index of a source has the names of its files and a mark at each record, so a reader compares every file
with the planning. See ADR 21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_hexdigest, xxh3_64_intdigest

from elasticdl.shared.data.blocks import ColumnBatch
from elasticdl.shared.data.column_types import FoundColumn, selected
from elasticdl.shared.data.formats.segments import Segment, changed
from elasticdl.shared.data.hashing import Hashes, content_hashes
from elasticdl.shared.data.schema import Column, ReaderOptions
from elasticdl.shared.errors import UserError
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display, for_each, scheme_of

TYPES = {"image": "binary", "label": "int64", "class": "string", "file": "string"}
"""The columns: content of the file, number and name of its class, and its name below the common folder."""
EXTENSIONS = ("jpg", "jpeg", "png", "gif", "bmp")
FILES_MAX = 4096
"""Files of a source. A worker loads the lists of the sources that it reads from."""
_CHUNK_FILES = 256
_CLASSES_SHOWN = 10
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageList:
    """The files of one source.

    Attributes:
        info: of the source: ``FOLDER[START:END]`` of the list of all files, their bytes together, and a digest of
            their names, sizes and etags.
        files: names below the folder that all sources share, quoted as in URIs.
    """

    info: ObjectInfo
    files: tuple[str, ...]


def lists(files: Sequence[ObjectInfo]) -> list[ImageList]:
    """The sources of a data set.

    Args:
        files: all of them, at least one.
    """
    folders = {_folder(file.uri) for file in files}
    root = _common_folder(folders)
    if len(folders) == 1:
        root = _folder(root)  # So that the names below it have the name of the only class.
    ordered = sorted(files, key=lambda file: (xxh3_64_intdigest(file.uri[len(root) :].encode()), file.uri))
    found = []
    for start in range(0, len(ordered), FILES_MAX):
        part = ordered[start : start + FILES_MAX]
        facts = "\n".join(f"{file.uri[len(root) :]} {file.size_bytes} {file.etag}" for file in part)
        info = ObjectInfo(
            uri=f"{root}[{start}:{start + len(part)}]",
            size_bytes=sum(file.size_bytes for file in part),
            etag=xxh3_64_hexdigest(facts.encode()),
        )
        found.append(ImageList(info=info, files=tuple(file.uri[len(root) + 1 :] for file in part)))
    return found


def _folder(uri: str) -> str:
    return uri.rpartition("/")[0]


def _common_folder(folders: set[str]) -> str:
    parts = [folder.split("/") for folder in (min(folders), max(folders))]
    same = 0
    while same < min(map(len, parts)) and parts[0][same] == parts[1][same]:
        same += 1
    return "/".join(parts[0][:same])


def class_name(root: str, file: str) -> str:
    """The name of the folder that a file is in.

    Args:
        root: URI of the common folder.
    """
    return display(_folder(f"{root}/{file}")).rpartition("/")[2]


def class_names(sources: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """The classes of a data set in the order of their labels.

    Args:
        sources: URI and files of each.
    """
    return tuple(sorted({class_name(root_of(uri), file) for uri, files in sources for file in files}))


def root_of(uri: str) -> str:
    """The common folder of a source's files, from its URI ``FOLDER[START:END]``."""
    return uri.rpartition("[")[0]


class Scan:
    """Every file of a source in order; ``columns`` says what they have.

    Raises:
        UserError: a column or a class does not exist; names the file.
    """

    def __init__(self, store: ObjectStore, uri: str, files: Sequence[str], options: ReaderOptions) -> None:
        self._store = store
        self._uris = [f"{root_of(uri)}/{file}" for file in files]
        for file in files:
            if (name := class_name(root_of(uri), file)) not in options.class_names:
                raise UserError(
                    f"{display(f'{root_of(uri)}/{file}')} is in the folder {name!r}, which is no class of the training "
                    f"data ({', '.join(options.class_names[:_CLASSES_SHOWN])})",
                    hint="Validation data has the classes of the training data, or some of them.",
                )
        self.columns = tuple(self._column(name, options) for name in selected(uri, list(TYPES), options))

    def __iter__(self) -> Iterator[Segment]:
        """Segments of records; their positions count the bytes of the files before.

        Raises:
            UserError: a file is no image; names it.
        """
        position = 0
        for start in range(0, len(self._uris), _CHUNK_FILES):
            uris = self._uris[start : start + _CHUNK_FILES]
            images = _contents(self._store, uris)
            for uri, image in zip(uris, images, strict=True):
                if not image.startswith(_BEGINNINGS):
                    raise UserError(
                        f"{display(uri)} is not a JPEG, PNG, GIF or BMP image",
                        hint="Remove it, or write it again.",
                    )
            ends = position + np.cumsum([len(image) for image in images])
            positions = np.concatenate([[position], ends[:-1]])
            position = int(ends[-1])
            yield Segment(contents=content_hashes(images), positions=positions, end=position)

    def _column(self, name: str, options: ReaderOptions) -> FoundColumn:
        given = options.column_types.get(name, TYPES[name])
        if given != TYPES[name]:
            raise UserError(
                f"--column_types {name}={given}: the column of image files is {TYPES[name]}",
                hint="Convert it in the model's feed.",
                usage=True,
            )
        return FoundColumn(name=name, type=given)


def _contents(store: ObjectStore, uris: Sequence[str]) -> list[bytes]:
    """The content of each file; those of an object store are requested together."""
    if scheme_of(uris[0]) != "s3":
        return [store.read(uri) for uri in uris]
    return list(for_each(uris, store.read))


class Images:
    """Some records of a source.

    Args:
        root: URI of the common folder.
        columns: to read, in this order.

    Attributes:
        hashes: content hash of each, shape ``[records]``.
    """

    def __init__(
        self,
        *,
        root: str,
        files: Sequence[str],
        contents: list[bytes],
        columns: Sequence[Column],
        classes: Sequence[str],
    ) -> None:
        self.hashes: Hashes = content_hashes(contents)
        self._root = root
        self._files = files
        self._contents = contents
        self._columns = columns
        self._labels = {name: label for label, name in enumerate(classes)}

    def uri(self, record: int) -> str:
        """The file of a record, counted from the first of these."""
        return f"{self._root}/{self._files[record]}"

    @property
    def columns(self) -> ColumnBatch:
        """Typed columns."""
        names = [class_name(self._root, file) for file in self._files]
        found: dict[str, npt.NDArray[Any]] = {
            "image": _objects(self._contents),
            "label": np.array([self._labels[name] for name in names], np.int64),
            "class": _objects(names),
            "file": _objects([display(self.uri(place))[len(display(self._root)) + 1 :] for place in range(len(names))]),
        }
        return ColumnBatch.of({column.name: found[column.name] for column in self._columns})


def _objects(values: Sequence[object]) -> npt.NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def read(
    store: ObjectStore, uri: str, files: Sequence[str], columns: Sequence[Column], classes: Sequence[str]
) -> Images:
    """Records of a source.

    Args:
        columns: to read, in this order.

    Raises:
        UserError: a file does not exist any more.
    """
    root = root_of(uri)
    try:
        contents = _contents(store, [f"{root}/{file}" for file in files])
    except ObjectNotFoundError as error:
        raise changed(error.uri) from error
    return Images(root=root, files=files, contents=contents, columns=columns, classes=classes)
