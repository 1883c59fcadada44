"""The data of the batches in progress, by ``BatchRef``: the core knows only the refs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.shared.data.ragged import Columns
from elasticdl.worker.core import BatchRef
from elasticdl.worker.ports import TableIds, TableRows
from elasticdl.worker.ps_client import Pulled, PushRequest


@dataclass(slots=True, kw_only=True)
class LoadedBatch:
    """One batch; the lane that works on it may change it.

    Attributes:
        batch: tensors, or None when the user's filter dropped every record.
        kept: columns that a prediction job copies beside the predictions.
        weights: what was pulled for it.
    """

    batch: Any
    records: int
    checksum: int
    tables: Mapping[str, TableIds]
    kept: Columns = field(default_factory=dict)
    weights: Pulled | None = None
    push: PushRequest | None = None

    def rows(self) -> TableRows:
        """Pulled rows by table, with the row of each id."""
        if self.weights is None:
            return {}
        pulled = self.weights.rows
        return {table: (pulled[table], ids.inverse) for table, ids in self.tables.items()}

    def rows_of(self, tables: Mapping[str, TableIds]) -> TableRows:
        """The pulled rows of some of the batch's ids; of an id that was not pulled, any row."""
        if self.weights is None:
            return {}
        found = {}
        for table, ids in tables.items():
            places = {one: place for place, one in enumerate(self.tables[table].unique.tolist())}
            own = [places.get(one, 0) for one in ids.unique.tolist()]
            found[table] = self.weights.rows[table][own], ids.inverse
        return found

    def drop_weights(self) -> None:
        """Return the receive buffers; the batch has to be pulled for again."""
        if self.weights is not None:
            self.weights.release()
            self.weights = None

    @property
    def step(self) -> int:
        """Step of the weights; 0 without weights."""
        return self.weights.step if self.weights is not None else 0


class BatchStore:
    """Batches by ref. Every lane may call it: the core never lets two lanes work on the same batch."""

    def __init__(self) -> None:
        self._batches: dict[BatchRef, LoadedBatch] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, ref: BatchRef) -> LoadedBatch:
        return self._batches[ref]

    def __setitem__(self, ref: BatchRef, loaded: LoadedBatch) -> None:
        self._batches[ref] = loaded

    def release(self, ref: BatchRef) -> None:
        """Drop a batch and return its receive buffers. The caller makes sure that no step uses them any more."""
        loaded = self._batches.pop(ref, None)
        if loaded is not None:
            loaded.drop_weights()
