"""Colour images of ten classes, 32 x 32: generated patterns under noise, or the original CIFAR-10 files.

A record is a ``tf.train.Example`` with ``image`` (3,072 bytes: rows of pixels of red, green, blue) and ``label``.

A generated image is the pattern of its class at a random place, plus Gaussian noise. So the probability of each class
given the image is known, and with it the best possible accuracy: that of the class with the largest one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elasticdl.shared.errors import UserError
from elasticdl.zoo import writing
from elasticdl.zoo.writing import TEST, TRAIN, DataRequest, Images, Labels, Written, refuse

SIDE, CHANNELS, CLASSES = 32, 3, 10
RECORDS = 4000
TEST_SHARE = 0.25

_PATTERN = 12
_NOISE = 1.0
_STRENGTH = 0.2
_GREY, _SCALE = 128.0, 40.0
"""A value v of the generator becomes the byte _GREY + _SCALE * v."""
_BINARY_FILES = {TRAIN: tuple(f"data_batch_{number}.bin" for number in range(1, 6)), TEST: ("test_batch.bin",)}

Floats = NDArray[np.float64]


def make(request: DataRequest) -> Written:
    """Write both folders."""
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    if request.source is not None:
        refuse(request, "cifar10 and --source", records=True)
    patterns = _patterns(request.seed)
    for number, part in enumerate((TRAIN, TEST)):
        if request.source is not None:
            images, labels = _binary(request.source, part)
        else:
            count = request.records or RECORDS
            count = count if part == TRAIN else max(1, round(count * TEST_SHARE))
            images, labels = _drawn(patterns, count, np.random.default_rng((request.seed, 1, number)))
            if part == TEST:
                best = {"accuracy": float(np.mean(np.argmax(likelihoods(images, patterns), axis=1) == labels))}
        writing.write_images(request.folder / part, images, labels)
        counts[part] = len(labels)
    return counts, best


def read_images(folder: str | Path) -> tuple[Images, Labels]:
    """The images and labels in a folder that ``make`` wrote, in the order of the files."""
    return writing.read_images(folder, (SIDE, SIDE, CHANNELS))


def likelihoods(images: Images, patterns: Floats) -> Floats:
    """For each class the logarithm of an image's probability, without a summand that all classes share.

    The place of the pattern is not known, so the probability is the mean over all places. The noise at different
    pixels is independent, so at one place the logarithm is (2 <image, pattern> - <pattern, pattern>) / (2 noise^2).

    Args:
        images: (records, 32, 32, 3).
        patterns: (classes, n, n, 3).

    Returns:
        (records, classes).
    """
    values = (images.astype(np.float64) - _GREY) / _SCALE
    classes = len(patterns)
    padded = np.zeros((classes, SIDE, SIDE, CHANNELS))
    padded[:, :_PATTERN, :_PATTERN] = patterns
    spectra = np.conj(np.fft.rfft2(padded, axes=(1, 2)))
    places = SIDE - _PATTERN + 1
    found = []
    for start in range(0, len(values), 100):
        image_spectra = np.fft.rfft2(values[start : start + 100], axes=(1, 2))
        products = np.fft.irfft2(np.einsum("nijc,kijc->nkij", image_spectra, spectra), s=(SIDE, SIDE))
        score = products[..., :places, :places] - np.sum(patterns**2, axis=(1, 2, 3))[:, None, None] / 2
        score = score.reshape(len(score), classes, -1) / _NOISE**2
        highest = score.max(axis=2, keepdims=True)
        found.append(np.log(np.exp(score - highest).mean(axis=2)) + highest[..., 0])
    return np.concatenate(found)


def _patterns(seed: int) -> Floats:
    """Smooth patterns of the classes, (classes, n, n, 3)."""
    coarse = np.random.default_rng((seed, 0)).normal(size=(CLASSES, _PATTERN // 3, _PATTERN // 3, CHANNELS))
    return 3 * _STRENGTH * np.repeat(np.repeat(coarse, 3, axis=1), 3, axis=2)


def _drawn(patterns: Floats, count: int, random: np.random.Generator) -> tuple[Images, Labels]:
    labels = random.integers(CLASSES, size=count)
    values = _NOISE * random.standard_normal((count, SIDE, SIDE, CHANNELS), np.float32)
    places = random.integers(SIDE - _PATTERN + 1, size=(count, 2))
    for value, label, (row, column) in zip(values, labels, places, strict=True):
        value[row : row + _PATTERN, column : column + _PATTERN] += patterns[label]
    return np.clip(np.rint(_GREY + _SCALE * values), 0, 255).astype(np.uint8), labels.astype(np.int64)


def _binary(source: Path, part: str) -> tuple[Images, Labels]:
    """The files of one part in CIFAR-10's binary version: per record a label and the red, green and blue pixels."""
    size = 1 + CHANNELS * SIDE * SIDE
    blocks = []
    for name in _BINARY_FILES[part]:
        path = source / name
        if not path.exists():
            raise UserError(
                f"{source} has no {name}", hint="--source is the folder cifar-10-batches-bin of the binary version."
            )
        data = np.fromfile(path, np.uint8)
        if not data.size or data.size % size or data.reshape(-1, size)[:, 0].max() >= CLASSES:
            raise UserError(f"{path} is not a file of CIFAR-10's binary version", hint="Download it again.")
        blocks.append(data.reshape(-1, size))
    records = np.concatenate(blocks)
    images = records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), records[:, 0].astype(np.int64)
