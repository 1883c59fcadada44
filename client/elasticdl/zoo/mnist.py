"""Images of handwritten digits, 28 x 28: those of scikit-learn, or the original MNIST files.

A record is a ``tf.train.Example`` with ``image`` (784 bytes, row by row, 0 is the background) and ``label`` (0 to 9).
"""

from __future__ import annotations

import gzip
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.zoo import writing
from elasticdl.zoo.writing import TEST, TRAIN, DataRequest, Images, Labels, Written, refuse

SIDE = 28
TEST_SHARE = 0.2
_UNSIGNED_BYTES = 0x08
_IDX_FILES = {
    TRAIN: ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    TEST: ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


def make(request: DataRequest) -> Written:
    """Write both folders."""
    refuse(request, "mnist", records=True)
    parts = (
        _digits(request.seed) if request.source is None else {part: _idx(request.source, part) for part in _IDX_FILES}
    )
    for part, (images, labels) in parts.items():
        writing.write_images(request.folder / part, images, labels)
    return {part: len(labels) for part, (_, labels) in parts.items()}, {}


def read_images(folder: str | Path) -> tuple[Images, Labels]:
    """The images and labels in a folder that ``make`` wrote, in the order of the files."""
    return writing.read_images(folder, (SIDE, SIDE))


def upscale(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Enlarge square images (records, n, n) bilinearly to (records, SIDE, SIDE)."""
    size = images.shape[1]
    centres = np.clip((np.arange(SIDE) + 0.5) * size / SIDE - 0.5, 0, size - 1)
    left = np.minimum(centres.astype(np.int64), size - 2)
    weights = np.zeros((SIDE, size))
    weights[np.arange(SIDE), left] = 1 - (centres - left)
    weights[np.arange(SIDE), left + 1] = centres - left
    enlarged: NDArray[np.float64] = weights @ images @ weights.T
    return enlarged


def stratified_split(labels: Labels, test_share: float, seed: int) -> tuple[Labels, Labels]:
    """Positions of training and test records, shuffled, with the same share of every class in both."""
    random = np.random.default_rng(seed)
    train, test = [], []
    for label in np.unique(labels):
        places = random.permutation(np.flatnonzero(labels == label))
        cut = math.ceil(len(places) * test_share)
        test.append(places[:cut])
        train.append(places[cut:])
    return random.permutation(np.concatenate(train)), random.permutation(np.concatenate(test))


def _digits(seed: int) -> dict[str, tuple[Images, Labels]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UserError(
            "the example data mnist comes from scikit-learn, which is not installed",
            hint="Install it (pip install scikit-learn), or convert the original MNIST files with --source=DIR.",
        ) from error
    digits = load_digits()
    images = np.rint(upscale(digits.images) * (255 / 16)).astype(np.uint8)
    labels = digits.target.astype(np.int64)
    train, test = stratified_split(labels, TEST_SHARE, seed)
    return {TRAIN: (images[train], labels[train]), TEST: (images[test], labels[test])}


def _idx(source: Path, part: str) -> tuple[Images, Labels]:
    images, labels = (_read_idx(source, name) for name in _IDX_FILES[part])
    if images.shape[1:] != (SIDE, SIDE) or labels.shape != (len(images),):
        raise UserError(
            f"{source}: {_IDX_FILES[part][0]} has the shape {images.shape} and {_IDX_FILES[part][1]} {labels.shape}",
            hint=f"Images must have the shape (records, {SIDE}, {SIDE}), and labels (records,).",
        )
    return images, labels.astype(np.int64)


def _read_idx(source: Path, name: str) -> Images:
    """One file of the IDX format: two zeros, element type, number of dimensions, sizes (big-endian), elements."""
    plain, packed = source / name, source / f"{name}.gz"
    path = plain if plain.exists() else packed
    if not path.exists():
        raise UserError(f"{source} has neither {name} nor {name}.gz", hint="--source is the folder of the MNIST files.")
    try:
        data = gzip.decompress(path.read_bytes()) if path is packed else path.read_bytes()
    except (gzip.BadGzipFile, EOFError) as error:
        raise UserError(f"{path} can't be unpacked: {error}", hint="Download it again.") from error
    if len(data) < 4 or data[:3] != bytes((0, 0, _UNSIGNED_BYTES)) or len(data) < 4 + 4 * data[3]:
        raise UserError(f"{path} is not an IDX file of bytes", hint="Download it again.")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    elements = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if elements.size != math.prod(shape):
        raise UserError(
            f"{path} has {elements.size} elements; its header says {math.prod(shape)}", hint="Download it again."
        )
    return elements.reshape(shape)
