"""Data whose records a worker makes from their numbers: it travels as an object, and no pass over it is written.

The plan, the ledgers and the audit know numbers. What belongs to a number has to be the same in each process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import keras
import numpy as np
import numpy.typing as npt

from elasticdl.shared.errors import UserError
from elasticdl.shipping.columns import Array, Layout, laid_out

NUMBER = "number"
"""The one column of the files of such data."""
Numbers = npt.NDArray[np.int64]
Seeded = Callable[[int], AbstractContextManager[None]]
"""(epoch) -> a context in which random numbers follow from the job's seed and the epoch."""
_LIVE_MAX = 2


class Source(Protocol):
    """Data by number.

    Attributes:
        name: names it in messages.
        count: numbers are ``range(count)``.
        batch_size: numbers that make a batch.
        has_epochs: its records are others after ``end_epoch()``.
    """

    name: str
    count: int
    batch_size: int
    has_epochs: bool

    def read(self, numbers: Numbers) -> Any:
        """The records of these numbers: ``x``, ``(x, y)`` or ``(x, y, sample_weight)``."""
        ...

    def begin_epoch(self) -> None:
        """Before the first batch of an epoch."""
        ...

    def end_epoch(self) -> None:
        """After the last batch of an epoch."""
        ...


class SameEachEpoch:
    """The part of a ``Source`` whose records are the same in each epoch."""

    has_epochs = False

    def begin_epoch(self) -> None:
        """See ``Source``."""

    def end_epoch(self) -> None:
        """See ``Source``."""


class Batches:
    """A ``keras.utils.PyDataset``: a number stands for a batch."""

    batch_size = 1

    def __init__(self, dataset: Any, count: int) -> None:
        self.name = type(dataset).__name__
        self.count = count
        self._dataset = dataset
        kind, plain = type(dataset), keras.utils.PyDataset
        self.has_epochs = kind.on_epoch_end is not plain.on_epoch_end or kind.on_epoch_begin is not plain.on_epoch_begin

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        return self._dataset[int(numbers[0])]

    def begin_epoch(self) -> None:
        """See ``Source``."""
        self._dataset.on_epoch_begin()
        now = self._dataset.num_batches
        if now is not None and now < self.count:
            raise UserError(
                f"{self.name} has {now:,} batches after on_epoch_end(), and had {self.count:,} when fit() was called",
                hint="A job plans all epochs before the first one: keep the number of batches.",
            )

    def end_epoch(self) -> None:
        """See ``Source``."""
        self._dataset.on_epoch_end()


class Drawn:
    """Batches of all epochs, read one after the other: a number stands for a batch of an epoch.

    Args:
        columns: of all batches, as ``laid_out`` gives them.
        sizes: records of each batch.
        count: batches of an epoch.
    """

    name = "the data"
    batch_size = 1
    has_epochs = True

    def __init__(self, layout: Layout, columns: Mapping[str, Array], sizes: Sequence[int], count: int) -> None:
        self.count = count
        self._layout, self._columns = layout, dict(columns)
        self._starts = np.cumsum([0, *sizes])
        self._epoch = 0

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        number = self._epoch * self.count + int(numbers[0])
        rows = slice(self._starts[number], self._starts[number + 1])
        few = {name: array[rows] for name, array in self._columns.items()}
        return keras.utils.pack_x_y_sample_weight(*structured(self._layout, few))

    def begin_epoch(self) -> None:
        """See ``Source``."""

    def end_epoch(self) -> None:
        """See ``Source``."""
        self._epoch += 1


class Continued:
    """Another source, of which each epoch continues where the one before has ended, as with ``steps_per_epoch``.

    A number stands for a batch of an epoch.

    Args:
        count: batches of an epoch.
        shuffled: whether each pass has another order.
    """

    batch_size = 1
    has_epochs = True

    def __init__(self, source: Source, count: int, *, shuffled: bool) -> None:
        self.name = source.name
        self.count = count
        self.source, self._shuffled = source, shuffled
        self._epoch = 0
        self._orders: dict[int, Numbers] = {}
        """Pass -> the order of its numbers."""

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        one_pass, number = divmod(self._epoch * self.count + int(numbers[0]), self._batches)
        size = self.source.batch_size
        return self.source.read(self._orders[one_pass][number * size : (number + 1) * size])

    def begin_epoch(self) -> None:
        """See ``Source``."""
        self.source.begin_epoch()
        first, end = (epoch * self.count for epoch in (self._epoch, self._epoch + 1))
        passes = range(first // self._batches, (end - 1) // self._batches + 1)
        self._orders = {one: self._orders[one] if one in self._orders else self._order() for one in passes}

    def end_epoch(self) -> None:
        """See ``Source``."""
        self.source.end_epoch()
        self._epoch += 1

    @property
    def _batches(self) -> int:
        """Batches of a pass."""
        return -(-self.source.count // self.source.batch_size)

    def _order(self) -> Numbers:
        count = self.source.count
        return np.random.permutation(count) if self._shuffled else np.arange(count)


class Sliced(SameEachEpoch):
    """Arrays: a number stands for a record.

    Args:
        columns: as ``laid_out`` gives them.
    """

    name = "the data"

    def __init__(self, layout: Layout, columns: Mapping[str, Array], batch_size: int) -> None:
        self.batch_size = batch_size
        self.count = len(next(iter(columns.values())))
        self._layout, self._columns = layout, dict(columns)

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        few = {name: array[numbers] for name, array in self._columns.items()}
        return keras.utils.pack_x_y_sample_weight(*structured(self._layout, few))


class InBatches(SameEachEpoch):
    """Another source, in which a number stands for a batch."""

    batch_size = 1

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.count = -(-source.count // source.batch_size)
        self._source = source

    def read(self, numbers: Numbers) -> Any:
        """See ``Source``."""
        first = int(numbers[0]) * self._source.batch_size
        return self._source.read(np.arange(first, min(first + self._source.batch_size, self._source.count)))


def structured(layout: Layout, columns: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """``x``, ``y`` and ``sample_weight`` of columns; None for those that are absent."""
    parts = (layout.features, layout.labels, layout.weights)
    features, labels, weights = (
        None if part is None else keras.tree.map_structure(columns.__getitem__, part) for part in parts
    )
    return features, labels, weights


class NumberedData:
    """Reads a source in a worker, for one thread at a time.

    Args:
        load: makes the source as it was when ``fit()`` was called.
        layout: of the columns. A source without sample weights has weights of 1 where the layout has some.
    """

    def __init__(self, load: Callable[[], Source], layout: Layout) -> None:
        self._load = load
        self._layout = layout
        self._live: dict[int, Source] = {}
        self._source: Source | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}

    def reach(self, epoch: int, seeded: Seeded) -> None:
        """Have the following reads read an epoch, counted from 0.

        A source is taken from epoch to epoch by its own methods, with random numbers that are the same in each process.
        For an epoch that it has passed, it is made again.
        """
        if self._source is None or self._source.has_epochs:
            self._source = self._at(epoch, seeded)

    def read(self, numbers: Numbers) -> dict[str, Array]:
        """The columns of some records.

        Raises:
            UserError: they have another structure or shape than the first ones.
        """
        assert self._source is not None
        layout, columns = laid_out(*keras.utils.unpack_x_y_sample_weight(self._source.read(numbers)))
        where = f"batch {int(numbers[0])} of {self._source.name}"
        if self._layout.weights is not None and layout.weights is None:
            layout = Layout(features=layout.features, labels=layout.labels, weights=self._layout.weights)
            columns[str(layout.weights)] = np.ones(len(next(iter(columns.values()))), np.float32)
        if layout != self._layout:
            raise UserError(f"{where} has another structure than the first batch of fit()")
        shapes = {name: column.shape[1:] for name, column in columns.items()}
        self._shapes = self._shapes or shapes
        for name, shape in shapes.items():
            if shape != self._shapes[name]:
                raise UserError(
                    f"{where}: {name} has the shape {shape} for each record, after {self._shapes[name]}",
                    hint="Pad the records of all batches to one length.",
                )
        return columns

    def _at(self, epoch: int, seeded: Seeded) -> Source:
        if epoch in self._live:
            return self._live[epoch]
        earlier = [one for one in self._live if one < epoch]
        if earlier:
            at = min(earlier)
            source = self._live.pop(at)
        else:
            at, source = 0, self._load()
            with seeded(0):
                source.begin_epoch()
            if len(self._live) == _LIVE_MAX:
                del self._live[max(self._live)]
        for number in range(at, epoch):
            with seeded(number + 1):
                source.end_epoch()
                source.begin_epoch()
        self._live[epoch] = source
        return source
