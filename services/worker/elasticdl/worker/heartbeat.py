"""Signs of life: what the heartbeat tells people, and the leases of the tasks in hand."""

from __future__ import annotations

import threading

import psutil

from elasticdl.worker.shutdown import Stop
from elasticdl.worker.training.leases import Leases
from elasticdl.worker.training.trainer import Meter


def metrics_of(meter: Meter, leases: Leases) -> dict[str, float]:
    """What a heartbeat says as of now."""
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
    return metrics


def keep_leases(leases: Leases, stop: Stop) -> threading.Thread:
    """Extend the leases until told to stop, on a thread of its own: a compiled step must not delay it."""

    def run() -> None:
        while not stop.wait(leases.interval_s):
            leases.extend()

    thread = threading.Thread(target=run, name="leases", daemon=True)
    thread.start()
    return thread
