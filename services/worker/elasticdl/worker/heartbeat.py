"""Signs of life: the heartbeat that people watch, and the leases of the tasks in hand."""

from __future__ import annotations

import asyncio
import threading

import psutil

from elasticdl.shared.beats import Beat
from elasticdl.shared.bus import Signals
from elasticdl.worker.journal import Journal
from elasticdl.worker.leases import Leases
from elasticdl.worker.stopping import Stop
from elasticdl.worker.training import Meter


def beat_of(journal: Journal, meter: Meter, leases: Leases) -> Beat:
    """A heartbeat as of now."""
    metrics = {
        "records": float(meter.records),
        "batches": float(meter.batches),
        "progress": float(leases.progressed),
        "loss": meter.loss,
        "step": float(meter.step),
        "rss_bytes": float(psutil.Process().memory_info().rss),
    }
    if not meter.batches:
        del metrics["loss"]  # Nobody should take the zero for a loss.
    return journal.voice.beat(metrics)


async def keep_beating(signals: Signals, journal: Journal, meter: Meter, leases: Leases, interval_s: float) -> None:
    """Beat until cancelled."""
    while True:
        await signals.beat(beat_of(journal, meter, leases))
        await asyncio.sleep(interval_s)


def keep_leases(leases: Leases, stop: Stop) -> threading.Thread:
    """Extend the leases until told to stop, on a thread of its own: a compiled step must not delay it."""

    def run() -> None:
        while not stop.wait(leases.interval_s):
            leases.extend()

    thread = threading.Thread(target=run, name="leases", daemon=True)
    thread.start()
    return thread
