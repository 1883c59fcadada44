"""Pods that were created before their job's master: they take their places, import, and wait for it."""

from __future__ import annotations

import asyncio

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.events import PodStarted
from elasticdl.shared.names import PodInstance, PodName


def wait_for_master(log: EventLog, loop: LoopThread, pod: PodName, instance: PodInstance, limit_s: float) -> None:
    """Wait until the master has taken over this pod, which was created before it. Until then, nothing of it counts.

    Raises:
        TransientError: it takes too long, so another job may have this pod's place meanwhile; or the log can't be read.
    """
    try:
        loop.call(asyncio.wait_for(_until_started(log, pod, instance), limit_s))
    except TimeoutError as error:
        raise TransientError(
            f"the master did not take over this pod within {limit_s:g} s. The pod frees its place, and the master "
            "creates it again"
        ) from error


async def _until_started(log: EventLog, pod: PodName, instance: PodInstance) -> None:
    async for record in log.read(0):
        event = record.envelope.event
        if isinstance(event, PodStarted) and event.pod == pod and event.instance == instance:
            return
