"""Reads data sets by exact record ranges, from files of several formats in any object store.

A record has a number in its source and a 64-bit hash. The index of a source has the position of every N-th record and
the sum of the hashes before it, so any range can be read alone and has an exact checksum.

May import numpy, pyarrow, xxhash, google_crc32c and ``elasticdl.shared``. Must not import TensorFlow, know tasks or
batches, or write into the user's folders.
"""

from elasticdl.shared.data.blocks import RawBatch, RecordBlock
from elasticdl.shared.data.discovery import broken_link, discover
from elasticdl.shared.data.formats import FORMATS
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.hashing import record_hash
from elasticdl.shared.data.index import ScannedSource, SourceIndex, scan_source, scan_sources
from elasticdl.shared.data.indices import IndexStore
from elasticdl.shared.data.planning import PlannedData, plan_sources
from elasticdl.shared.data.reader import Reader
from elasticdl.shared.data.schema import DataSchema, Metadata, ReaderOptions
from elasticdl.shared.data.upload import put

__all__ = [
    "FORMATS",
    "DataObject",
    "DataSchema",
    "IndexStore",
    "Metadata",
    "PlannedData",
    "RawBatch",
    "Reader",
    "ReaderOptions",
    "RecordBlock",
    "ScannedSource",
    "SourceIndex",
    "broken_link",
    "discover",
    "plan_sources",
    "put",
    "record_hash",
    "scan_source",
    "scan_sources",
]
