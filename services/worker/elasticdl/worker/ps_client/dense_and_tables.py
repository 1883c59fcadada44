"""The client of a job whose dense variables are in a ring and whose tables are on ps, as if both were one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import SERVED_REPLICA
from elasticdl.shared.wire.messages import NO_FLOATS, Floats, Ids
from elasticdl.worker.ps_client.client import PsClient
from elasticdl.worker.ps_client.requests import NO_INSTANCES, EpochMetrics, Instances, Pulled


class DenseAndTables:
    """See ``PsClient``. It pushes nothing: the ring and the ps get a batch one after the other.

    Args:
        dense: of the replica that the leader of the ring serves.
        tables: of the ps.
    """

    def __init__(self, signature: ModelSignature, dense: PsClient, tables: PsClient) -> None:
        self.signature = signature
        self._dense, self.tables = dense, tables

    def initialise(self, dense: Floats) -> bool:
        """Offer initial values: the tables need none, but each ps has to know them."""
        self.tables.initialise(NO_FLOATS)
        return self._dense.initialise(dense)

    def read_metrics(self, epoch: int, skipped: tuple[int, ...] = ()) -> EpochMetrics:
        """See ``PsClient``; the replica adds them up."""
        return self._dense.read_metrics(epoch, skipped)

    def pull(
        self,
        ids: Mapping[str, Ids],
        *,
        pin: int = 0,
        dense: bool = True,
        batch: tuple[int, int] | None = None,
        only: Instances = NO_INSTANCES,
        averages: bool = False,
    ) -> Pulled:
        """See ``PsClient``."""
        of_replica = {ps: one for ps, one in only.items() if ps == SERVED_REPLICA}
        of_tables = {ps: one for ps, one in only.items() if ps != SERVED_REPLICA}
        rows = self.tables.pull(ids, pin=pin, dense=False, batch=batch, only=of_tables)
        if not dense:
            return rows
        try:
            return joined(self._dense.pull({}, pin=pin, batch=batch, only=of_replica, averages=averages), rows)
        except BaseException:
            rows.release()
            raise

    def pull_rows(self, table: str, ids: Ids, *, pin: int = 0, only: Instances = NO_INSTANCES) -> Floats:
        """See ``PsClient``."""
        of_tables = {ps: one for ps, one in only.items() if ps != SERVED_REPLICA}
        return self.tables.pull_rows(table, ids, pin=pin, only=of_tables)

    def close(self) -> None:
        """See ``PsClient``."""
        self._dense.close()
        self.tables.close()


def joined(dense: Pulled, rows: Pulled) -> Pulled:
    """The dense variables of one pull and the rows of another one."""

    def release() -> None:
        dense.release()
        rows.release()

    return replace(
        dense,
        rows=rows.rows,
        iterations={**dense.iterations, **rows.iterations},
        step=min(dense.step, rows.step),
        release=release,
    )
