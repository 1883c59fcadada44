"""The core of a replica: that of a ps with the whole model, which absorbs rounds whose gradients are summed already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elasticdl.ps.engine.checks import NotFiniteError
from elasticdl.ps.shard.admission import check_batch, check_plan
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.job.ledger import Verdict
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import TaskId
from elasticdl.shared.wire.messages import Floats, Push


class ReplicaCore(PsCore):
    """See ``PsCore``."""

    @property
    def is_ready(self) -> bool:
        """Whether pulls and pushes are served."""
        return self._ready

    def adopt(self, placement: Placement) -> bool:
        """Adopt the number of a later version. Beside a ring it places the tables, and a replica has none."""
        return super().adopt(placement.of_replica)

    def replace(self, shard: ModelShard) -> None:
        """Serve another state from now on: a copy of a replica that is ahead."""
        with self.lock:
            self._pin.close()
            self.shard, self._ready = shard, True

    def apply_round(
        self, pushes: Sequence[Push], gradient: Floats | npt.NDArray[np.float64] | None, now_s: float = 0.0
    ) -> None:
        """Absorb a whole round, see ``Group.apply_round``; each push was checked by ``problem_of``.

        Raises:
            InvariantError: the round is not the next one, or applying it failed; the process must die.
        """
        with self.lock:
            shard = self.serving(self.placement.version)
            (group,) = shard.groups
            for push in pushes:
                if (verdict := group.judge(push)) is not Verdict.APPLIED:
                    raise InvariantError(f"task {push.task}, batch {push.batch} of a round is {verdict.name}")
            try:
                group.apply_round(pushes, gradient)
            except Exception as error:
                self._ready = False
                raise InvariantError(f"applying the round of task {pushes[0].task} failed") from error
            for push in pushes:
                self.pulls.on_pushed(push, shard.next_batch(TaskId(push.task), push.batches), now_s)
            if self._observer:
                self._observer.stepped(shard.step)

    def problem_of(self, push: Push) -> str:
        """What in a batch is NaN or infinite, so that it must not be applied; empty: nothing.

        Raises:
            ProtocolError: the push does not fit plan or model.
        """
        check_plan(push.plan, self.plan)
        check_batch(push, self.plan)
        with self.lock:
            shard = self.serving(push.placement_version)
            try:
                for division in shard.divide(push):
                    division.group.check(division.push)
            except NotFiniteError as error:
                return str(error)
        return ""
