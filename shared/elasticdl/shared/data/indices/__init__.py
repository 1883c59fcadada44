"""Stores the indices of a data set together in one object, and reads parts of it.

``block`` encodes some hundred indices and ``columns`` what was found in their columns. ``packed`` is a file of blocks,
``store`` keeps such files with the job, and ``shared_index`` for the next job on the same data, which uses them as its
``previous`` index.

May import numpy and ``elasticdl.shared``. Must not read data files, except to compare a copy with its index.
"""

from elasticdl.shared.data.indices.packed import IndexFile, IndexLostError, IndexWriter, PackedIndices, pack
from elasticdl.shared.data.indices.store import IndexStore

__all__ = ["IndexFile", "IndexLostError", "IndexStore", "IndexWriter", "PackedIndices", "pack"]
