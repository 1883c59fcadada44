"""Requests to a running job: they are events on its log, which its master acts on."""

from __future__ import annotations

import asyncio
import contextlib
import os

from elasticdl.cli.jobs.handle import Condition, JobHandle
from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher


def stop(job: JobHandle) -> None:
    """Ask a running job to stop; returns before it has stopped."""
    condition = job.condition()
    check_not_suspended(job, condition, "stopped")
    try:
        asyncio.run(_publish(job, StopRequested(reason="elasticdl stop")))
    except ElasticDLError:
        if not condition.can_terminate:
            raise
        job.terminate()


def scale(job: JobHandle, *, workers: int, ps: int) -> None:
    """Ask a running job for another number of workers or ps; 0: unchanged."""
    check_not_suspended(job, job.condition(), "scaled")
    asyncio.run(_publish(job, ScaleRequested(workers=workers, ps=ps)))


def check_not_suspended(job: JobHandle, condition: Condition, what: str) -> None:
    """Refuse to ask a job for something that it can't do while it is suspended."""
    if suspended := condition.suspension:
        raise UserError(
            f"job {job.job} can't be {what} while its {suspended.process} is suspended",
            hint=f"To continue it: {suspended.remedy}",
        )


async def _publish(job: JobHandle, event: StopRequested | ScaleRequested) -> None:
    async with job.open() as bus:
        name = PodName(f"client-{os.getpid()}")
        publisher = QueuedEventPublisher(
            bus.log, EnvelopeFactory(service=Service.CLIENT, name=name, clock=SystemClock())
        )
        running = asyncio.create_task(publisher.run())
        publisher.publish(event)
        await asyncio.wait({asyncio.create_task(publisher.flush()), running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
