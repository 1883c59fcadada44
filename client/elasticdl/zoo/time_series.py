"""Generated power demand as Parquet: windows of 48 hours of many sites, and the hour that follows.

Columns: ``hour`` (int32, hour of the day of the value to forecast), ``past`` (48 floats, oldest first) and ``demand``,
the value that follows. A site's demand is a daily course plus a deviation. The deviation is a function of the two
before it, plus noise that no model can foresee. So the mean squared error of the best possible forecast is known: it
is that of the noise.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from elasticdl.zoo.writing import DataRequest, Written, write_table

RECORDS = 20_000
TEST_SHARE = 0.2
RECORDS_PER_FILE = 10_000
WINDOW = 48
WINDOWS_PER_SITE = 100
DAY = 24

_WARM_UP = 50
_NOISE = 0.3

Floats = NDArray[np.float64]


def make(request: DataRequest) -> Written:
    """Write both folders. Training and test have different sites."""
    counts = request.counts("time_series", RECORDS, TEST_SHARE)
    course = _course(np.random.default_rng((request.seed, 0)))
    best: dict[str, float] = {}
    for number, (part, count) in enumerate(counts.items(), start=1):
        random = np.random.default_rng((request.seed, number))
        windows, hours, noise = _windows(course, count, random)
        past = pa.FixedSizeListArray.from_arrays(pa.array(windows[:, :WINDOW].reshape(-1)), WINDOW)
        columns = {"hour": hours, "past": past, "demand": windows[:, WINDOW]}
        write_table(request.folder / part, columns, RECORDS_PER_FILE)
        best = {"mse": float(np.mean(noise**2)), "mae": float(np.mean(np.abs(noise)))}  # The last is the test's.
    return counts, best


def _course(random: np.random.Generator) -> Floats:
    """The part of the demand that depends on the hour, (24,)."""
    angle = 2 * np.pi * np.arange(DAY) / DAY
    first, second = random.uniform(0, 2 * np.pi, size=2)
    course: Floats = np.sin(angle + first) + 0.5 * np.sin(2 * angle + second)
    return course


def _windows(
    course: Floats, count: int, random: np.random.Generator
) -> tuple[NDArray[np.float32], NDArray[np.int32], Floats]:
    """Windows with the value that follows, in random order; its hour; and its noise."""
    sites = -(-count // WINDOWS_PER_SITE)
    length = _WARM_UP + WINDOW + WINDOWS_PER_SITE
    noise = _NOISE * random.normal(size=(sites, length))
    deviation = np.zeros((sites, length))
    for time in range(2, length):
        before, earlier = deviation[:, time - 1], deviation[:, time - 2]
        deviation[:, time] = 1.8 * np.tanh(before) - 0.8 * earlier + noise[:, time]
    start = random.integers(DAY, size=(sites, 1))
    hours = (start + np.arange(length)) % DAY
    values = course[hours] + deviation
    windows = np.lib.stride_tricks.sliding_window_view(values[:, _WARM_UP:], WINDOW + 1, axis=1)
    order = random.permutation(windows.shape[0] * windows.shape[1])[:count]
    last = _WARM_UP + WINDOW
    return (
        windows.reshape(-1, WINDOW + 1)[order].astype(np.float32),
        hours[:, last:].reshape(-1)[order].astype(np.int32),
        noise[:, last:].reshape(-1)[order],
    )
