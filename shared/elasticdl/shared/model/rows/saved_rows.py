"""What the saved slabs of a snapshot's rows mean at the moment of the snapshot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from elasticdl.shared.model.manifests import Manifest
from elasticdl.shared.model.partitioning import mask_of
from elasticdl.shared.model.placement import PARTITIONS, Ranges
from elasticdl.shared.model.rows.missed_updates import MissedUpdates
from elasticdl.shared.model.rows.timeline import Timeline
from elasticdl.shared.model.rows.zero_gradients import zero_gradient_of
from elasticdl.shared.model.signature import ModelSignature, Optimizer, RowTable, VariableKind

_Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int64]


class SavedRows:
    """The rows of one snapshot, which may be in chunks of the snapshots that it builds on.

    A saved row is up to the update that touched it last. Its weights at the snapshot follow from that.

    Args:
        signature: the model.
        manifest: of the snapshot: what its groups have learned is the moment that counts.
    """

    def __init__(self, signature: ModelSignature, manifest: Manifest) -> None:
        self._timeline = Timeline()
        for group in manifest.groups:
            self._timeline.updates[mask_of(group.partitions)] = group.iteration
            self._timeline.rates.load(group.rates, group.iteration)
        self._tables = signature.tables
        self._missed = [self._missed_by(table, signature.optimizer) for table in signature.tables]

    def slabs(self, number: int, ids: _Ids, slabs: _Floats) -> _Floats:
        """Slabs to train on, of table ``number``; ``ids`` int64[n], ``slabs`` float32[n, slab width].

        Slabs of earlier versions do not say which updates a row is up to. It did not catch up then: it is up to date.
        """
        missed = self._missed[number] if number < len(self._missed) else None
        if missed is None or slabs.shape[1] + 1 != missed.slab_width:
            return slabs
        up_to = self._timeline.updates_of(ids).view(np.float32)
        return np.ascontiguousarray(np.column_stack([slabs, up_to]))

    def weights(self, number: int, ids: _Ids, slabs: _Floats) -> _Floats:
        """Slabs without slots: the weights at the snapshot, and the last update of rows that expire.

        Of table ``number``; ``ids`` int64[n], ``slabs`` float32[n, slab width].
        """
        table, missed = self._tables[number], self._missed[number]
        if missed is None:
            weights = slabs[:, : table.width]
        else:
            slabs = np.ascontiguousarray(self.slabs(number, ids, slabs))
            weights = np.empty((ids.size, table.width), np.float32)
            now = self._timeline.updates_of(ids)
            missed.gather(slabs.reshape(-1), np.arange(ids.size), now, weights.reshape(-1))
        return np.ascontiguousarray(np.hstack([weights, slabs[:, -1:]]) if table.expire_after else weights)

    def initial_factors(self, number: int, partitions: Ranges, others: _Floats | None) -> _Floats | None:
        """By partition: by what the initial weights of missing rows are multiplied at the snapshot.

        Args:
            number: of the table.
            partitions: those that are taken from this snapshot.
            others: the factors of the others; None: these are 1.
        """
        missed = self._missed[number]
        if missed is None or not missed.moves_untouched:
            return others
        factors = np.ones(PARTITIONS, np.float32) if others is None else others
        mask = mask_of(partitions)
        factors[mask] = missed.untouched(self._timeline.updates[mask])
        return factors

    def _missed_by(self, table: RowTable, optimizer: Optimizer) -> MissedUpdates | None:
        rule = zero_gradient_of(optimizer)
        if table.kind is not VariableKind.TRAINABLE or rule.changes_nothing:
            return None
        slab_width = table.width * (1 + len(rule.slot_factors)) + 1
        return MissedUpdates(rule, table.width, slab_width, self._timeline.rates)
