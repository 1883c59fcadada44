"""What the heartbeat of a worker tells people."""

from __future__ import annotations

import psutil

from elasticdl.shared.storage.cache import CacheUsage
from elasticdl.worker.core import WorkerCore


def metrics_of(core: WorkerCore, usage: CacheUsage | None) -> dict[str, float]:
    """The metrics of now; any thread may call. ``usage`` of object storage; None: the data is not open yet."""
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
    if usage is not None and usage.requests:
        metrics["data_requests"] = float(usage.requests)
        metrics["data_fetched_bytes"] = float(usage.fetched_bytes)
        metrics["data_cached_bytes"] = float(usage.cached_bytes)
    return metrics
