"""Putting the answers of several ps to one pull together again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.model.partitioning import DensePart, RowSplit
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.messages import Floats, PullReply, TableIds, split_rows


class Gathering:
    """One pull's result, in pooled buffers; with a single ps mostly views of what was received."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._buffers: list[Bytes] = []

    def dense(self, parts: Sequence[DensePart], replies: Sequence[PullReply]) -> Floats:
        """The flat vector over all variables in the signature's order.

        Raises:
            ProtocolError: a ps sent another number of values than it holds.
        """
        for part, reply in zip(parts, replies, strict=True):
            if reply.dense.size != part.size:
                raise ProtocolError(f"a ps sent {reply.dense.size} dense values instead of {part.size}")
        if len(parts) == 1 and len(parts[0].runs) <= 1:
            return replies[0].dense
        flat = self._floats(sum(part.size for part in parts))
        for part, reply in zip(parts, replies, strict=True):
            part.scatter(reply.dense, flat)
        return flat

    def rows(
        self,
        splits: Mapping[str, RowSplit],
        tables: Sequence[Sequence[TableIds]],
        replies: Sequence[PullReply],
    ) -> dict[str, Floats]:
        """Rows float32[n, width] of each table in the order of the pull's ids.

        Args:
            splits: by table name, in the order of the request.

        Raises:
            ProtocolError: a ps sent another number of rows than it was asked for.
        """
        by_ps = [split_rows(reply.rows, asked) for asked, reply in zip(tables, replies, strict=True)]
        gathered = {}
        for position, (name, split) in enumerate(splits.items()):
            if split.order is None:
                gathered[name] = by_ps[0][position]
                continue
            width = tables[0][position].width
            rows = self._floats(split.ids.size * width).reshape(split.ids.size, width)
            for ps, parts in enumerate(by_ps):
                rows[split.order[split.part(ps)]] = parts[position]
            gathered[name] = rows
        return gathered

    def releasing(self, received: Sequence[Callable[[], None]]) -> Callable[[], None]:
        """A function that gives all buffers back, once; ``received``: releases what the answers lie in."""

        def release() -> None:
            for give_back in received:
                give_back()
            buffers, self._buffers = self._buffers, []
            for buffer in buffers:
                self._pool.give_back(buffer)

        return release

    def _floats(self, size: int) -> Floats:
        buffer = self._pool.take(4 * size)
        self._buffers.append(buffer)
        return buffer.view(np.float32)[:size]
