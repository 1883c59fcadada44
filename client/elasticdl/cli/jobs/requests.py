"""Requests to a running job: they are events on its log, which its master acts on."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial

from elasticdl.cli.jobs.handle import JobHandle, unless_ended
from elasticdl.shared.messages.events import ScaleRequested, StopRequested
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory
from elasticdl.shared.process.event_publisher import QueuedEventPublisher


async def request(job: JobHandle, event: StopRequested | ScaleRequested) -> None:
    """Put a request to a running job on its log, where its master reads it.

    Raises:
        JobEndedError: nothing reads it any more.
    """
    await unless_ended(job, partial(_published, job, event))


async def _published(job: JobHandle, event: StopRequested | ScaleRequested) -> None:
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
