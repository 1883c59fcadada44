"""A job with a thousand workers: how fast the master creates their pods, with how many requests, and its memory."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from tests.cluster.kwok.conftest import AddNodes
from tests.cluster.kwok.control_plane import ControlPlane
from tests.cluster.kwok.simulated_job import JobSize, simulated_job
from tests.cluster.scenarios.conftest import Note, note  # noqa: F401  A fixture.

from elasticdl.shared.messages.commands import StartPod
from elasticdl.shared.messages.events import Decided, LogRecord, PodStarted

WORKERS = 1000
TASKS_EACH = 5
WINDOW_S = 10.0
REQUESTS_PER_SECOND_MAX = 50
MASTER_MB_MAX = 300


@pytest.mark.bench_cluster
@pytest.mark.timeout(600)
async def test_a_thousand_workers_train(
    plane: ControlPlane,
    add_nodes: AddNodes,
    nats_url: str,
    tmp_path: Path,
    note: Note,  # noqa: F811
) -> None:
    add_nodes(WORKERS // 50, {})
    size = JobSize(workers=WORKERS, resources="cpu=1,memory=1Gi", task_s=10.0)
    async with simulated_job(plane, nats_url, tmp_path, "large-1", size) as job:
        await job.start()
        await job.until(lambda: len(job.workers) == WORKERS, f"{WORKERS} pods run")
        await job.until(
            lambda: all(worker.totals.finished >= TASKS_EACH for worker in job.workers.values()), "all workers train"
        )
        records = await job.records()
        memory, cpu = job.master.memory_info().rss, job.master.cpu_times()
        threads = job.master.num_threads()
    requests = request_times(plane.audit_log)
    ordered = [record.envelope.time_s for record in records if _orders_pods(record)]
    started = [record.envelope.time_s for record in records if isinstance(record.envelope.event, PodStarted)]
    note(
        workers=WORKERS,
        pods_started=len(started),
        from_first_order_to_last_start_s=round(max(started) - min(ordered), 1),
        requests=len(requests),
        requests_per_s_max_in_1_s=busiest(requests, 1.0),
        requests_per_s_max_in_10_s=busiest(requests, WINDOW_S) / WINDOW_S,
        master_mb=round(memory / 1e6),
        master_cpu_s=round(cpu.user + cpu.system, 1),
        master_threads=threads,
    )
    assert len(started) == WORKERS + 1
    assert busiest(requests, WINDOW_S) <= REQUESTS_PER_SECOND_MAX * WINDOW_S
    assert memory < MASTER_MB_MAX * 1e6


def request_times(audit_log: Path) -> list[float]:
    """When the API server received the requests of the master, in seconds since the epoch, sorted."""
    lines = map(json.loads, audit_log.read_text().splitlines())
    return sorted(datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp() for line in lines)


def busiest(times: list[float], window_s: float) -> int:
    """The most requests within a window of time."""
    first = most = 0
    for last, time_s in enumerate(times):
        while times[first] <= time_s - window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def _orders_pods(record: LogRecord) -> bool:
    event = record.envelope.event
    return isinstance(event, Decided) and any(isinstance(each, StartPod) for each in event.commands)
