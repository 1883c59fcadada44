"""A heartbeat as metrics for Prometheus: the values are the same, the names follow its conventions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from elasticdl.shared.failure_detection.heartbeats import Heartbeat
from elasticdl.shared.monitoring.exposition import Family

METRICS: Mapping[str, tuple[str, Literal["counter", "gauge"], str]] = {
    "cpu_s": ("process_cpu_seconds_total", "counter", "User and system CPU seconds of the process."),
    "rss_bytes": ("process_resident_memory_bytes", "gauge", "Resident memory of the process."),
    "records": ("worker_records_total", "counter", "Records that the worker has computed."),
    "batches": ("worker_batches_total", "counter", "Batches that the worker has computed."),
    "progress": ("worker_finished_batches_total", "counter", "Batches of any purpose that the worker has finished."),
    "loss": ("worker_loss", "gauge", "Loss of the latest batches."),
    "data_requests": ("worker_data_requests_total", "counter", "Requests for data to object storage."),
    "data_fetched_bytes": ("worker_data_fetched_bytes_total", "counter", "Bytes that these requests returned."),
    "data_cached_bytes": ("worker_data_cached_bytes_total", "counter", "Bytes that were read from the local cache."),
    "step": ("ps_step", "gauge", "Updates of the part of the model that has fewest. A restored ps has fewer."),
    "rows": ("ps_rows", "gauge", "Rows of embedding tables that the ps holds."),
    "model_bytes": ("ps_model_bytes", "gauge", "Memory of the part of the model that the ps holds."),
}
"""Name in a heartbeat -> name for Prometheus without ``elasticdl_``, kind, meaning."""


def families_of(heartbeats: Iterable[Heartbeat]) -> list[Family]:
    """The metrics of processes, each with the labels ``service`` and ``process``."""
    families = {key: Family(f"elasticdl_{name}", kind, about) for key, (name, kind, about) in METRICS.items()}
    seen = Family("elasticdl_process_heartbeat_timestamp_seconds", "gauge", "When the process sent its last heartbeat.")
    for heartbeat in heartbeats:
        labels = {"service": heartbeat.service.value, "process": str(heartbeat.name)}
        seen.add(heartbeat.time_s, **labels)
        for key, value in heartbeat.metrics.items():
            if key in families:
                families[key].add(value, **labels)
    return [seen, *families.values()]
