"""A job with very many files: what its list of files costs each part of the control plane.

    python -m benchmarks.many_files [--files 1000000]

The files do not exist: sources with names, sizes and etags of usual length are generated. Measured are the fingerprint
of the plan, the submission to a real nats-server, a process that reads the job from the log as each worker and ps does,
the start of a real master until its first decision, and the object to which manifests of snapshots refer. Prints a line
of JSON for each step: seconds, CPU seconds, and the memory of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psutil
from benchmarks.control_plane.processes import JOB, job_spec

from elasticdl.shared.bus import nats_bus, subjects
from elasticdl.shared.bus.nats_bus.connection import Connection
from elasticdl.shared.bus.reading import read_spec
from elasticdl.shared.bus.server import NatsServer
from elasticdl.shared.bus.settings import BusSettings
from elasticdl.shared.job.plan import Source
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.messages.events import Decided, Envelope, JobSubmitted
from elasticdl.shared.model.stored_spec import StoredSpec
from elasticdl.shared.names import MASTER, PodName, Service, new_incarnation
from elasticdl.shared.process.settings import MasterSettings, to_environment
from elasticdl.shared.storage import open_store, to_uri

R = TypeVar("R")


def show(step: str, **facts: float) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps({"step": step} | {name: round(value, 2) for name, value in facts.items()}) + "\n")
    sys.stdout.flush()


def memory_mb(pid: int | None = None) -> dict[str, float]:
    """Present and largest memory of a process, by default of this one."""
    status = Path(f"/proc/{pid or os.getpid()}/status").read_text()
    return {
        f"{name}_mb": int(status.partition(f"{field}:")[2].split()[0]) * 1024 / 1e6
        for name, field in (("rss", "VmRSS"), ("peak", "VmHWM"))
    }


def timed(step: str, run: Callable[[], R]) -> R:
    """Run a step in this process."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    result = run()
    show(step, s=time.perf_counter() - began_s, cpu_s=time.process_time() - began_cpu_s, **memory_mb())
    return result


def spec_of(files: int, storage: str) -> JobSpec:
    """A job with a number of files of ten records."""
    sources = tuple(
        Source(
            uri=f"s3://training-data/clicks/part-{number:08d}.csv",
            size_bytes=10_000 + number % 997,
            etag=f"{number * 0x9E3779B97F4A7C15 & (1 << 64) - 1:016x}" * 2,
            records=10,
        )
        for number in range(files)
    )
    small = job_spec(1, 1)
    return replace(small, plan=replace(small.plan, sources=sources), storage=storage)


async def read_job(url: str) -> None:
    """Read the job from its log, as a worker or ps does."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    bus = await nats_bus.connect(url, JOB)
    spec = await read_spec(bus.log)
    show("read", s=time.perf_counter() - began_s, cpu_s=time.process_time() - began_cpu_s, **memory_mb())
    timed("first task", lambda: spec.plan.shards(next(spec.plan.task_ids())))
    await bus.close()


async def submit(url: str, spec: JobSpec) -> None:
    """Append JobSubmitted to the log."""
    bus = await nats_bus.connect(url, JOB)
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    client = Envelope(
        service=Service.CLIENT,
        name=PodName("client"),
        incarnation=new_incarnation(),
        number=1,
        time_s=time.time(),
        event=JobSubmitted(spec=spec),
    )
    await bus.log.append(client)
    connection = await Connection.open(url, JOB, BusSettings())
    stored = (await connection.api(f"STREAM.INFO.{subjects.payloads_stream(JOB)}", {}))["state"]
    facts = {"payload_mb": stored["bytes"] / 1e6, "parts": stored["messages"]}
    show("submit", s=time.perf_counter() - began_s, cpu_s=time.process_time() - began_cpu_s, **facts, **memory_mb())
    await connection.close()
    await bus.close()


async def start_master(url: str, folder: Path) -> None:
    """Start the shipped master, and wait until its first decision is on the log."""
    environment = os.environ | to_environment(MasterSettings(nats_url=url, job=JOB, pod=MASTER))
    bus = await nats_bus.connect(url, JOB)
    began_s, last = time.perf_counter(), await bus.log.last_seq()
    with (folder / "master.log").open("w") as log:
        master = subprocess.Popen([sys.executable, "-m", "elasticdl.master.main"], env=environment, stderr=log)
    try:
        async for record in bus.log.read(last):
            if isinstance(record.envelope.event, Decided):
                break
        cpu_s = sum(psutil.Process(master.pid).cpu_times()[:2])
        show("master's first decision", s=time.perf_counter() - began_s, cpu_s=cpu_s, **memory_mb(master.pid))
    finally:
        master.kill()
        master.wait()
        await bus.close()


def measure(files: int, server: NatsServer, url: str, folder: Path) -> None:
    """All steps."""
    spec = timed("plan", lambda: spec_of(files, to_uri(str(folder / "storage"))))
    timed("fingerprint", lambda: spec.plan.fingerprint)
    asyncio.run(submit(url, spec))
    stored: Any = timed("object for manifests", lambda: StoredSpec(spec))
    timed("its first write", lambda: stored.write_if_missing(open_store(stored.uri)))
    timed("its later checks", lambda: stored.write_if_missing(open_store(stored.uri)))
    subprocess.run([sys.executable, "-m", "benchmarks.many_files", "--read", url], check=True)
    asyncio.run(start_master(url, folder))
    assert server.pid
    show("nats-server", **memory_mb(server.pid))


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the job")
    parser.add_argument("--read", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.read:
        asyncio.run(read_job(arguments.read))
        return 0
    with tempfile.TemporaryDirectory(prefix="elasticdl-many-files-") as folder:
        server = NatsServer(Path(folder) / "nats")
        try:
            measure(arguments.files, server, server.start(), Path(folder))
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
