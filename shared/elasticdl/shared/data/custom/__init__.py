"""Readers that users write in their model files (``custom_data_reader``): records from a database, for instance.

A reader is an object that names shards and reads any range of one. Its records become sources, an index and record
blocks, as those of files do, so plan, ledgers and audit treat both alike.

May import numpy, pyarrow and ``elasticdl.shared.data``. Must not import TensorFlow or the model file: callers make the
user's object, and report what it raises.
"""

from elasticdl.shared.data.custom.checked_reader import CheckedReader
from elasticdl.shared.data.custom.planning import plan_reader
from elasticdl.shared.data.custom.protocol import DataReader, ReadTask, ShardRange
from elasticdl.shared.data.custom.shard_reader import CustomShardReader

__all__ = ["CheckedReader", "CustomShardReader", "DataReader", "ReadTask", "ShardRange", "plan_reader"]
