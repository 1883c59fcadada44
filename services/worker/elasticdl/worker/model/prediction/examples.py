"""Records as ``tf.train.Example``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf


def serialized(record: Mapping[str, Sequence[Any]]) -> bytes:
    """A record as a serialised ``tf.train.Example``.

    Args:
        record: feature -> its values: all integers or booleans, all floats, or all texts or bytes.
    """
    features = {name: _feature(values) for name, values in record.items()}
    data: bytes = tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
    return data


def _feature(values: Sequence[Any]) -> Any:
    first = values[0] if values else 0
    if isinstance(first, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(first, (str, bytes)):
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
