"""What the heartbeat of a worker tells people."""

from __future__ import annotations

import psutil

from elasticdl.worker.core import WorkerCore


def metrics_of(core: WorkerCore) -> dict[str, float]:
    """The metrics of now; any thread may call."""
    meter = core.training.meter
    metrics = {
        "records": float(meter.records),
        "batches": float(meter.batches),
        "progress": float(core.leases.progress_count),
        "step": float(meter.step),
        "rss_bytes": float(psutil.Process().memory_info().rss),
    }
    if meter.batches:
        metrics["loss"] = meter.loss
    return metrics
