"""IDX files, in which MNIST is published: an array of numbers, and a second file with the labels of its records.

    two zeros, element type, number of dimensions (1 byte each); sizes (4 bytes each, big-endian); elements

``train-images-idx3-ubyte`` has the images whose labels are in ``train-labels-idx1-ubyte`` beside it. Both are one
source, named after the images; its size and etag are those of both.
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace

import numpy as np

from elasticdl.shared.data.formats.array_file import ArrayColumn, ArrayFormat, StoredArray
from elasticdl.shared.data.formats.data_format import DataObject
from elasticdl.shared.data.formats.gzip_content import SUFFIX, content_size, open_content
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Source
from elasticdl.shared.storage import ObjectInfo, ObjectNotFoundError, ObjectStore, display

IMAGE, LABEL = "image", "label"
"""The columns."""
_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IMAGES = re.compile(r"images([-.])idx[0-9]")
_TRAIN, _TEST = "train-images", "t10k-images"


def _begins_file(data: bytes) -> bool:
    return len(data) >= 8 and data[:2] == b"\0\0" and data[2] in _TYPES and 0 < data[3] <= 8


def _stored_array(store: ObjectStore, info: ObjectInfo) -> StoredArray:
    with open_content(store, info.uri) as stream:
        start = stream.read(4)
        sizes = stream.read(4 * start[3]) if len(start) == 4 else b""
    if not _begins_file(start + sizes) or len(sizes) != 4 * start[3]:
        raise UserError(f"{display(info.uri)} is not an IDX file", hint="Download it again.")
    return StoredArray(
        uri=info.uri,
        dtype=np.dtype(_TYPES[start[2]]),
        shape=struct.unpack(f">{start[3]}I", sizes),
        offset=4 + len(sizes),
        size_bytes=content_size(info),
    )


def _labels_of(store: ObjectStore, uri: str) -> ObjectInfo | None:
    """The file with the labels of images, plain or compressed."""
    folder, _, name = uri.rpartition("/")
    found = _IMAGES.search(name)
    if found is None:
        return None
    labels = _IMAGES.sub(rf"labels{found[1]}idx1", name).removesuffix(SUFFIX)
    for other in (labels + SUFFIX, labels) if name.endswith(SUFFIX) else (labels, labels + SUFFIX):
        try:
            return store.info(f"{folder}/{other}")
        except ObjectNotFoundError:
            continue
    return None


def _together(images: ObjectInfo, labels: ObjectInfo | None) -> ObjectInfo:
    if labels is None:
        return images
    return ObjectInfo(
        uri=images.uri, size_bytes=images.size_bytes + labels.size_bytes, etag=f"{images.etag}+{labels.etag}"
    )


class _Idx(ArrayFormat):
    name = "idx"
    title = "IDX"
    has_one_object = False

    def begins(self, start: bytes) -> bool:
        return _begins_file(start)

    def columns(self, store: ObjectStore, info: ObjectInfo) -> tuple[ArrayColumn, ...]:
        """Images, and labels if there is a file of them."""
        array = _stored_array(store, store.info(info.uri))
        labels = _labels_of(store, info.uri)
        found = (ArrayColumn(name=IMAGE, array=array),)
        return found if labels is None else (*found, ArrayColumn(name=LABEL, array=_stored_array(store, labels)))

    def info(self, store: ObjectStore, source: Source) -> ObjectInfo:
        """Size and etag of images and labels together."""
        return _together(store.info(source.uri), _labels_of(store, source.uri))

    def sources(self, store: ObjectStore, files: list[DataObject]) -> list[DataObject]:
        """One source for images and their labels.

        Raises:
            UserError: the images of some labels are not there, or training and test data are mixed.
        """
        infos = [file.info for file in files]
        images = {info.uri: _labels_of(store, info.uri) for info in infos if len(_stored_array(store, info).shape) > 1}
        labels = {info.uri for info in images.values() if info is not None}
        for info in infos:
            if info.uri not in images and info.uri not in labels:
                raise UserError(
                    f"{display(info.uri)} has labels, and there are no images for them",
                    hint="Give the file of the images, such as train-images-idx3-ubyte, beside it.",
                )
        names = [uri.rpartition("/")[2] for uri in images]
        if any(name.startswith(_TRAIN) for name in names) and any(name.startswith(_TEST) for name in names):
            folder = display(next(iter(images)).rpartition("/")[0])
            raise UserError(
                f"{folder} has the training data and the test data of MNIST",
                hint=f"Give one of them: '{folder}/train-*' or '{folder}/t10k-*'.",
            )
        return [
            replace(file, info=_together(file.info, images[file.info.uri])) for file in files if file.info.uri in images
        ]


FORMAT = _Idx()
