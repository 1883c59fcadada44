"""A resume without a log opens its run with two events; its pod may be killed between them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.cli.kubernetes.test_manifests import TRAIN
from tests.unit.ps.job_with_snapshots import STORAGE, job
from tests.unit.ps.jobs import Job

from elasticdl.cli.jobs.former_run import FormerRun
from elasticdl.cli.jobs.resume_changes import ResumeChanges
from elasticdl.cli.jobs.resumption import plan_next_run
from elasticdl.cli.kubernetes.submission_file import SubmissionFile
from elasticdl.cli.kubernetes.submit import is_open
from elasticdl.master.core import State
from elasticdl.shared.bus.memory import MemoryBroker, MemoryBus
from elasticdl.shared.messages.events import Envelope, Event
from elasticdl.shared.names import LAUNCHER, Incarnation, Service
from elasticdl.views import reading

__all__ = ["job"]
RUN = Incarnation("0123456789ab")
CHANGES = ResumeChanges(epochs=9)


class Pod:
    """A container ``submit`` of this run, on a broker that has lost the log."""

    def __init__(self, job: Job, bus: MemoryBus) -> None:
        self.job, self.bus = job, bus
        self.file = SubmissionFile(job=job.spec.job, run=RUN, created_s=1.0, flags=TRAIN, resumption=CHANGES)

    async def open(self, *, survives: bool) -> State:
        """Open the run as far as the pod comes; returns the job."""
        former = FormerRun(job=self.job.spec.job, arguments="j", storage=STORAGE)
        events = (await plan_next_run(self.bus, self.job.store, former, CHANGES, RUN)).opening
        for event in events if survives else events[:1]:
            await self._append(event)
        return (await reading.exact(self.bus)).state

    async def _append(self, event: Event) -> None:
        envelope = Envelope(service=Service.LAUNCHER, name=LAUNCHER, incarnation=RUN, number=1, time_s=1.0, event=event)
        await self.bus.log.append(replace(envelope, number=1 + await self.bus.log.last_seq()))


@pytest.mark.parametrize("killed", [0, 1, 2])
async def test_the_next_pod_completes_what_opens_the_run(job: Job, killed: int) -> None:
    pod = Pod(job, MemoryBroker().connect())
    for _ in range(killed):
        assert not is_open(await pod.open(survives=False), pod.file)
    state = await pod.open(survives=True)
    assert is_open(state, pod.file)
    assert (state.resumes, state.job.plan.epochs) == (1, 9)
    assert len(state.lost_logs) == 1
