"""What the saved slabs of a snapshot's rows mean at the moment of the snapshot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.manifests import Manifest
from elasticdl.shared.model.partitioning import mask_of
from elasticdl.shared.model.placement import PARTITIONS, Ranges
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.rows.zero_gradients import missed_updates_of
from elasticdl.shared.model.signature import ModelSignature

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]


class SavedRows:
    """The rows of one snapshot, which are in its chunks and in those of the snapshots that it builds on.

    A saved row is up to the update that touched it last. Its weights at the snapshot follow from that.

    Args:
        chain: the snapshot after those that it builds on: what its groups have learned is the moment that counts.
    """

    def __init__(self, signature: ModelSignature, chain: Sequence[tuple[str, Manifest]]) -> None:
        self._timeline = _timeline_of(chain[-1][1])
        self._tables = signature.tables
        self._missed = [
            missed_updates_of(table, signature.optimizer, self._timeline.rates) for table in signature.tables
        ]

    def weights(self, number: int, ids: _Ids, slabs: _Floats) -> _Floats:
        """Slabs without slots: the weights at the snapshot, and the last update of rows that expire.

        Args:
            ids: int64[n].
            slabs: float32[n, slab width].
        """
        table, missed = self._tables[number], self._missed[number]
        if missed is None:
            weights = slabs[:, : table.width]
        else:
            weights = np.empty((ids.size, table.width), np.float32)
            now = self._timeline.updates_of(ids)
            missed.gather(np.ascontiguousarray(slabs).reshape(-1), np.arange(ids.size), now, weights.reshape(-1))
        return np.ascontiguousarray(np.hstack([weights, slabs[:, -1:]]) if table.expire_after else weights)

    def initial_factors(self, number: int, partitions: Ranges, others: _Floats | None) -> _Floats | None:
        """By partition: by what the initial weights of missing rows are multiplied at the snapshot."""
        missed = self._missed[number]
        if missed is None or not missed.moves_untouched:
            return others
        factors = np.ones(PARTITIONS, np.float32) if others is None else others
        mask = mask_of(partitions)
        factors[mask] = missed.untouched(self._timeline.updates[mask])
        return factors


def _timeline_of(manifest: Manifest) -> Timeline:
    timeline = Timeline()
    for group in manifest.groups:
        timeline.updates[mask_of(group.partitions)] = group.iteration
        timeline.rates.load(group.rates, group.iteration)
    return timeline
