"""Data that can be learned, but not perfectly; the same on every machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.generic]]
"""Column name -> values of all records, (records,) or (records, size)."""

VALIDATION = 2016
"""Records that follow the training data."""


def write(columns: Columns, training: int, folder: Path) -> None:
    """Write ``train/data.parquet`` with the first records and ``test/data.parquet`` with the rest."""
    records = len(next(iter(columns.values())))
    for name, first, last in (("train", 0, training), ("test", training, records)):
        table = pa.table({column: _arrow(values[first:last]) for column, values in columns.items()})
        (folder / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / name / "data.parquet")


def _arrow(values: NDArray[np.generic]) -> pa.Array:
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def read(file: Path) -> Columns:
    """Read what ``write`` wrote."""
    table = pq.read_table(file).combine_chunks()
    found: Columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            found[name] = column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), -1)
        else:
            found[name] = column.to_numpy(zero_copy_only=False)
    return found


def texts() -> Columns:
    """Texts of 40 words; what a word says about the class depends on the words before it."""
    random = np.random.default_rng(1)
    records, length, vocabulary = 8064 + VALIDATION, 40, 2000
    words = random.zipf(1.3, size=(records, length)) % vocabulary
    meaning = random.normal(size=vocabulary)
    score, context = np.zeros(records), np.zeros(records)
    for place in range(length):
        word = meaning[words[:, place]]
        score += word * (0.5 + 0.5 * np.sign(context))
        context = 0.7 * context + word
    return {"words": words.astype(np.int64), "label": (score > np.median(score)).astype(np.int64)}


def padded_texts() -> Columns:
    """``texts`` of 24 + 16 words, each part with zeros behind a random number of words."""
    columns = texts()
    words, random = columns["words"].astype(np.int64), np.random.default_rng(9)
    for first, last in ((0, 24), (24, 40)):
        ends = first + random.integers(4, last - first + 1, size=(len(words), 1))
        words[:, first:last][np.arange(first, last) >= ends] = 0
    return {"words": words, "label": columns["label"]}


def sentences() -> Columns:
    """``texts`` as strings."""
    columns = texts()
    lines = [" ".join(f"w{word}" for word in words) for words in columns["words"].tolist()]
    return {"text": np.array(lines, object), "label": columns["label"]}


def curves() -> Columns:
    """64 numbers between 0 and 1 that follow from 6."""
    random = np.random.default_rng(2)
    records = 8064 + VALIDATION
    score = random.normal(size=(records, 6)) @ random.normal(size=(6, 64))
    return {"pixels": (1 / (1 + np.exp(-score))).astype(np.float32)}


def choices() -> Columns:
    """Users and the items that they took; tastes of 1,200 users for 400 items have 6 dimensions."""
    random = np.random.default_rng(3)
    records, users, items = 7680 + VALIDATION, 1200, 400
    taste = random.normal(size=(users, 6)) @ random.normal(size=(6, items))
    user = random.integers(users, size=records)
    item = np.argmax(1.5 * taste[user] + random.gumbel(size=(records, items)), axis=1)
    return {"user": user.astype(np.int64), "item": item.astype(np.int64)}


def scales() -> Columns:
    """16 numbers with means and deviations of their own, and a smooth function of them, with noise."""
    random = np.random.default_rng(4)
    records = 4992 + VALIDATION
    normal = random.normal(size=(records, 16))
    hidden = np.tanh(normal @ random.normal(size=(16, 8)) / 2)
    target = hidden @ random.normal(size=8) + 0.1 * random.normal(size=records)
    numbers = normal * np.exp(random.normal(size=16)) + 2 * random.normal(size=16)
    return {"numbers": numbers.astype(np.float32), "target": target.astype(np.float32)}


def images() -> Columns:
    """Images of 16 x 16 x 3: the pattern of one of five classes at a random place, under noise."""
    random = np.random.default_rng(5)
    records, side = 2304 + VALIDATION // 4, 16
    patterns = random.normal(size=(5, 8, 8, 3))
    label = random.integers(5, size=records)
    pixels = 1.2 * random.normal(size=(records, side, side, 3))
    for record, (row, column) in enumerate(random.integers(side - 8, size=(records, 2))):
        pixels[record, row : row + 8, column : column + 8] += patterns[label[record]]
    return {"pixels": pixels.reshape(records, -1).astype(np.float32), "label": label.astype(np.int64)}


def series() -> Columns:
    """32 values of a sum of two oscillations, with noise, and the one that follows."""
    random = np.random.default_rng(6)
    records, steps = 8064 + VALIDATION, 32
    time = np.arange(steps + 1)
    value = np.zeros((records, steps + 1))
    for shortest, longest in ((5, 9), (12, 30)):
        period = random.uniform(shortest, longest, size=(records, 1))
        value += np.sin(2 * np.pi * (time / period + random.uniform(size=(records, 1))))
    value[:, :steps] += 0.1 * random.normal(size=(records, steps))
    return {"values": value[:, :steps].astype(np.float32), "next": value[:, steps].astype(np.float32)}


def purchases() -> Columns:
    """8 numbers and one of 50 regions; an amount and one of four kinds follow from them, with noise."""
    random = np.random.default_rng(7)
    records, regions = 8064 + VALIDATION, 50
    numbers, region = random.normal(size=(records, 8)), random.integers(regions, size=records)
    facts = np.concatenate([numbers, random.normal(size=(regions, 4))[region]], axis=1)
    hidden = np.tanh(facts @ random.normal(size=(12, 16)) / 2)
    amount = hidden @ random.normal(size=16) / 2 + 0.3 * random.normal(size=records)
    kind = np.argmax(hidden @ random.normal(size=(16, 4)) + random.gumbel(size=(records, 4)), axis=1)
    return {
        "numbers": numbers.astype(np.float32),
        "region": region.astype(np.int64),
        "amount": amount.astype(np.float32),
        "kind": kind.astype(np.int64),
    }


def sets() -> Columns:
    """Sets of 8 ids out of 300,000, some of them frequent; each id speaks for one of two classes."""
    random = np.random.default_rng(8)
    records, ids = 11520 + VALIDATION, 300_000
    # A power of a uniform number: the thousand most frequent ids make two fifths of all.
    chosen = (ids * random.uniform(size=(records, 8)) ** 6).astype(np.int64)
    score = random.normal(size=ids)[chosen].sum(axis=1)
    return {"ids": chosen, "label": (score + random.normal(size=records) > 0).astype(np.int64)}
