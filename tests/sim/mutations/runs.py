"""Mutations of what separates the runs of a job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.cli.jobs import resumption
from elasticdl.master.core import State, identity
from elasticdl.ps.shard import admission, core
from elasticdl.ps.snapshots.job_recovery import recover_job, settle_placement
from elasticdl.shared.bus.memory.log import Records
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import Service


@mutation(
    "a launcher's events count only in the run that it has opened",
    protects=Protects.LIVENESS,
    scenario="a-former-launcher-reports-a-start-late",
)
def events_of_former_launchers() -> Iterator[None]:
    original = identity.classify_sender

    def classify_sender(state: State, envelope: Envelope) -> identity.Sender:
        return identity.Sender.CURRENT if envelope.service is Service.LAUNCHER else original(state, envelope)

    with replaced(identity, "classify_sender", classify_sender):
        yield


@mutation(
    "the first event of a run is stored only as the next record of the log that its launcher has read",
    protects=Protects.LIVENESS,
)
def a_run_opens_after_the_last_record() -> Iterator[None]:
    """Two rules in a row guard this: the core ignores the event of a run that was overtaken, too."""
    fence = replaced(identity, "_may_open_run", lambda state, envelope, event: True)
    with fence, replaced(Records, "check_last", lambda self, after: None):
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


@mutation("a ps accepts tasks of epochs that a resume has added", protects=Protects.LIVENESS, added_epochs=1)
def tasks_of_added_epochs_are_accepted() -> Iterator[None]:
    check_task = admission.check_task

    def check_submitted(task: int, batches: int, plan: Any) -> None:
        if task >= plan.tasks:
            raise ProtocolError(f"task {task} is not in the plan of {plan.tasks} tasks")
        check_task(task, batches, plan)

    with replaced(admission, "check_task", check_submitted), replaced(core, "check_task", check_submitted):
        yield


@mutation(
    "the audit expects the checksum of all epochs, added ones included", protects=Protects.LIVENESS, added_epochs=1
)
def added_epochs_are_audited() -> Iterator[None]:
    def with_epochs(self: JobSpec, epochs: int) -> JobSpec:
        return replace(self, plan=replace(self.plan, epochs=epochs))

    with replaced(JobSpec, "with_epochs", with_epochs):
        yield
