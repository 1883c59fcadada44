"""Metrics over HTTP, as Prometheus asks for them."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from elasticdl.shared.bus.memory import MemoryBroker
from elasticdl.shared.failure_detection.heartbeat_loop import send_heartbeats
from elasticdl.shared.monitoring.metrics_server import serving_metrics
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.envelopes import EnvelopeFactory


def fetch(port: int, path: str = "/metrics", method: str = "GET") -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with urllib.request.urlopen(request, timeout=60) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text: str = response.read().decode()
        return text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def test_a_process_serves_its_last_heartbeat() -> None:
    port = free_port()
    envelopes = EnvelopeFactory(service=Service.PS, name=PodName("ps-0"), clock=SystemClock())
    signals = MemoryBroker().connect().signals
    sending = asyncio.create_task(
        send_heartbeats(signals, envelopes, 0.01, lambda: {"rows": 7.0, "unknown": 1.0}, metrics_port=port)
    )
    async for _ in signals.heartbeats():  # The port is open before the first one is sent.
        break
    text = await asyncio.to_thread(fetch, port)
    sending.cancel()
    found = {sample.name: sample for each in text_string_to_metric_families(text) for sample in each.samples}
    assert found["elasticdl_ps_rows"].value == 7.0
    assert found["elasticdl_ps_rows"].labels == {"service": "ps", "process": "ps-0"}
    assert found["elasticdl_process_cpu_seconds_total"].value > 0.0


async def test_a_second_process_takes_the_next_port() -> None:
    async with (
        serving_metrics(lambda: "a 1\n", free_port(), "127.0.0.1") as first,
        serving_metrics(lambda: "a 2\n", first, "127.0.0.1") as second,
    ):
        assert second > first
        assert await asyncio.to_thread(fetch, first) == "a 1\n"
        assert await asyncio.to_thread(fetch, second) == "a 2\n"
        assert await asyncio.to_thread(fetch, second, method="HEAD") == ""
        for path, method, status in (("/", "GET", 404), ("/metrics", "POST", 405)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(fetch, second, path, method)
            assert refused.value.code == status
            refused.value.close()


async def test_without_a_port_nothing_is_served() -> None:
    async with serving_metrics(lambda: "", 0) as port:
        assert port == 0
