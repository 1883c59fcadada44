"""Encodes the indices of consecutive sources together: what they share is stored once."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from elasticdl.shared.data.index import SourceIndex
from elasticdl.shared.job.sources import Source
from elasticdl.shared.messages.compression import decompressed_object

_COMPRESSION = 1
_LENGTH_BYTES = 4
_NUMBER_BYTES = 8


def to_bytes(indices: Sequence[SourceIndex]) -> bytes:
    """A compressed block: a JSON header, then the marks, positions and sums of all indices; 24 bytes per mark."""
    names = list(dict.fromkeys(index.names for index in indices))
    places = {each: place for place, each in enumerate(names)}
    header = {
        "first": indices[0].number,
        "uris": [index.source.uri for index in indices],
        "etags": [index.source.etag for index in indices],
        "sizes": [index.source.size_bytes for index in indices],
        "records": [index.source.records for index in indices],
        "marks": [len(index.marks) for index in indices],
        "names": names,
        "named": [places[index.names] for index in indices],
        "files": {place: index.files for place, index in enumerate(indices) if index.files},
    }
    text = json.dumps(header).encode()
    arrays = [
        *(index.marks.tobytes() for index in indices),
        *(index.positions.tobytes() for index in indices),
        *(index.sums.tobytes() for index in indices),
    ]
    return zlib.compress(b"".join([len(text).to_bytes(_LENGTH_BYTES, "little"), text, *arrays]), _COMPRESSION)


class Block(Sequence[SourceIndex]):
    """The indices of a block, each made when it is asked for.

    Raises:
        ValueError, KeyError, TypeError, zlib.error: it is damaged.
    """

    def __init__(self, data: bytes) -> None:
        content = decompressed_object(data)
        begin = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
        header: dict[str, Any] = json.loads(content[_LENGTH_BYTES:begin])
        self.first: int = header["first"]
        self._header = header
        self._names = [tuple(names) for names in header["names"]]
        self._ends = np.cumsum(header["marks"]).tolist()
        marks = self._ends[-1]
        size = marks * _NUMBER_BYTES
        self._marks = np.frombuffer(content, dtype=np.int64, count=marks, offset=begin)
        self._positions = np.frombuffer(content, dtype=np.int64, count=marks, offset=begin + size)
        self._sums = np.frombuffer(content, dtype=np.uint64, count=marks, offset=begin + 2 * size)
        self.size_bytes = len(content)
        """Of the arrays and the header, as they are encoded."""

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return tuple(self[each] for each in range(*place.indices(len(self))))
        header, place = self._header, range(len(self))[place]
        end = self._ends[place]
        own = slice(end - header["marks"][place], end)
        source = Source(
            uri=header["uris"][place],
            size_bytes=header["sizes"][place],
            etag=header["etags"][place],
            records=header["records"][place],
        )
        return SourceIndex(
            number=self.first + place,
            source=source,
            names=self._names[header["named"][place]],
            marks=self._marks[own],
            positions=self._positions[own],
            sums=self._sums[own],
            files=tuple(header["files"].get(str(place), ())),
        )
