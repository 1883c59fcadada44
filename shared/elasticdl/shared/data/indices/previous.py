"""Takes over from the index of a former job what it says of unchanged files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.index import ScannedSource
from elasticdl.shared.data.indices.packed import IndexFile
from elasticdl.shared.job.sources import Source


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
