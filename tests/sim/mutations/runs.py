"""Mutations of what separates the runs of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.cli.jobs import resumption
from elasticdl.master.core.job import lifecycle
from elasticdl.ps.snapshots.job_recovery import recover_job, settle_placement
from elasticdl.shared.bus.memory.log import Records


@mutation(
    "a launcher's events count only in the run that it has opened",
    protects=Protects.LIVENESS,
    scenario="a-former-launcher-reports-a-start-late",
)
def events_of_former_launchers() -> Iterator[None]:
    with replaced(lifecycle, "is_of_former_run", lambda state, envelope: False):
        yield


@mutation(
    "the first event of a run is stored only as the next record of the log that its launcher has read",
    protects=Protects.LIVENESS,
)
def a_run_opens_after_the_last_record() -> Iterator[None]:
    with replaced(Records, "check_last", lambda self, after: None):
        yield


@mutation(
    "a placement that a lost end of the log had published is replaced, even if no snapshot has it",
    protects=Protects.LIVENESS,
    scenario="the-end-of-the-log-is-lost-with-a-new-placement",
)
def published_placement_is_replaced() -> Iterator[None]:
    """Liveness: the master credits no task that was absorbed by a version that it does not know, so none finishes.

    Nothing is learned twice either: each ps refuses what was split by another version, and a part that does not fit.
    """

    async def settle(registers: Any, store: Any, spec: Any, recovered: Any, lost: Any, now_s: float) -> Any:
        found = recovered or recover_job(store, spec.storage, spec.job)
        if found is None or found.placement.version == 1:
            return None
        return await settle_placement(registers, store, spec, recovered, lost, now_s)

    with replaced(resumption, "settle_placement", settle):
        yield
