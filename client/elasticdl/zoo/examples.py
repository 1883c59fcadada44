"""Labelled images as TFRecord: each record is a ``tf.train.Example`` with ``image`` (its bytes) and ``label``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.data.formats.tfrecord import FrameDecoder, write_records
from elasticdl.zoo.example_pb2 import Example
from elasticdl.zoo.writing import part_paths

RECORDS_PER_FILE = 10_000
_SUFFIX = ".tfrecord"

Images = NDArray[np.uint8]
"""(records, ...)."""
Labels = NDArray[np.int64]
"""(records,)."""


def read_images(folder: str | Path, shape: tuple[int, ...]) -> tuple[Images, Labels]:
    """The images and labels in a folder that ``write_images`` wrote, in the order of the files."""
    images, labels = [], []
    for path in sorted(Path(folder).glob(f"*{_SUFFIX}")):
        data = path.read_bytes()
        records, _ = FrameDecoder(str(path), end=len(data)).decode(data)
        for record in records:
            feature = Example.FromString(record).features.feature
            images.append(np.frombuffer(feature["image"].bytes_list.value[0], np.uint8))
            labels.append(feature["label"].int64_list.value[0])
    return np.array(images, np.uint8).reshape(-1, *shape), np.array(labels, np.int64)


def write_images(folder: Path, images: Images, labels: Labels) -> None:
    """Write a folder of files; ``images``: (records, ...)."""
    paths = part_paths(folder, _SUFFIX)
    for start in range(0, len(labels), RECORDS_PER_FILE):
        stop = start + RECORDS_PER_FILE
        write_records(next(paths), _examples(images[start:stop], labels[start:stop]))


def _examples(images: Images, labels: Labels) -> Iterator[bytes]:
    for image, label in zip(images, labels, strict=True):
        example = Example()
        example.features.feature["image"].bytes_list.value.append(image.tobytes())
        example.features.feature["label"].int64_list.value.append(int(label))
        yield example.SerializeToString(deterministic=True)
