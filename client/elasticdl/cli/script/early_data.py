"""Large arrays of a call of ``fit()``: their job begins with a few records, and gets all of them once they are written.

The script makes the index from the arrays and writes the file while the process of the job checks the model with the
first records. Without that index, the file is read once more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elasticdl.cli.indexing.scanning import scan_in_parallel
from elasticdl.shared.data import DataObject, ReaderOptions, ScannedSource
from elasticdl.shared.data.formats.array_file import scan_arrays
from elasticdl.shared.data.formats.numpy_file import FORMAT
from elasticdl.shared.data.formats.segments import Segment
from elasticdl.shared.data.index import indexed
from elasticdl.shared.data.indices import IndexFile, IndexWriter
from elasticdl.shared.storage import ObjectInfo, ObjectStore, open_store, to_uri
from elasticdl.shared.storage.uris import local_path

_SUFFIX = ".index"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyData:
    """What a job begins with.

    Attributes:
        first: flags of ``train`` with files of the first records.
        wait: returns once all data is written. Raises ``KeyboardInterrupt``: the script has ended, or can't write it.
    """

    first: Mapping[str, Any]
    wait: Callable[[], object]


def index_arrays(file: Path, columns: Mapping[str, Any], before_part: Callable[[], None]) -> ScannedSource:
    """The index of arrays that will be written to a file.

    Args:
        before_part: is called before each part of some MiB, and may raise to end this.

    Raises:
        UserError: a column has a type that can't be read.
    """
    data = DataObject(info=ObjectInfo(uri=to_uri(file), size_bytes=0, etag=""), format=FORMAT.name)
    scan = scan_arrays(data.info.uri, columns)

    def segments() -> Iterator[Segment]:
        for segment in scan:
            before_part()
            yield segment

    return indexed(data, 0, segments(), lambda: (scan.columns, scan.names))


def save_index(file: Path, scanned: ScannedSource) -> None:
    """Save the index of a file beside it, now that it is complete."""
    uri = to_uri(file)
    store = open_store(uri)
    info = store.info(uri)
    source = replace(scanned.index.source, size_bytes=info.size_bytes, etag=info.etag)
    with IndexWriter(has_columns=True) as writer:
        writer.add(replace(scanned.index, source=source), scanned.found.columns)
        written = writer.finish()
    store.write(uri + _SUFFIX, written.path)


def scan_saved(
    store: ObjectStore, objects: Sequence[DataObject], options: ReaderOptions, numbers: Sequence[int] | None = None
) -> Iterable[ScannedSource]:
    """As ``scan_in_parallel``, for the one file of a job, which is not read if its index was saved."""
    (data,) = objects
    saved = local_path(data.info.uri + _SUFFIX)
    if saved.exists():
        (scanned,) = IndexFile(os.open(saved, os.O_RDONLY)).scanned()
        saved.unlink()
        source = scanned.index.source
        is_same = (source.size_bytes, source.etag) == (data.info.size_bytes, data.info.etag)
        # The types of validation data are those of the training data.
        types = {column.name: column.type for column in scanned.found.columns}
        if is_same and all(types[name] == kind for name, kind in options.column_types.items()):
            return [scanned]
    return scan_in_parallel(store, objects, options, numbers)
