"""Submits a job with very many small files: what reading them and saving their indices costs the client.

    python -m benchmarks.indexing [--files 100000] [--records 10] [--s3] [--delay_ms 10] [--change 50] [--jobs 2]

It writes CSV files of three columns to a temporary folder, or with ``--s3`` to the S3 server of the tests, which jobs
reach through a proxy that delays what is sent in each direction by half of ``--delay_ms``. Before each job but
the first, ``--change`` files are written again with other values, and as many are added behind the others. Each job is
planned by a process of its own, as ``elasticdl train`` does before it starts the job. The process then reads records of
2,000 random files, as a worker does. Prints a line of JSON for each: seconds, CPU seconds with
those of child processes, megabytes of memory at the start and at most, and the requests that the S3 server counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.many_files import memory_mb
from benchmarks.network_delay import DelayProxy
from tests.contract.servers.s3 import s3_server

from elasticdl.cli.submission.submit import prepare
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.plan import Shard
from elasticdl.shared.storage import for_each, join, open_store, to_uri
from elasticdl.shared.storage.cache import DataCacheSettings, DataStores
from elasticdl.worker.input.job_data import open_reader

MODEL = "def custom_model(): ...\ndef loss(a, b): ...\ndef optimizer(): ...\ndef feed_batch(a, b, c): ...\n"
FOLDER_FILES = 1000
READS = 2000


def write_data(place: str, files: Sequence[int], records: int, shift: int = 0) -> None:
    """CSV files, 1,000 in each folder."""
    store = open_store(place)

    def write(number: int) -> None:
        rows = "".join(f"{number},{row},{(number + shift) % 7}.5\n" for row in range(records))
        store.write(join(place, f"part-{number // FOLDER_FILES:04}/{number:07}.csv"), f"id,row,value\n{rows}".encode())

    for _ in for_each(files, write):
        pass


@contextmanager
def measured(step: str) -> Iterator[None]:
    """Print what a step of this process costs."""
    start, started_s, cpu_s = memory_mb()["rss_mb"], time.perf_counter(), _cpu_s()
    yield
    facts = {
        "seconds": round(time.perf_counter() - started_s, 1),
        "cpu_s": round(_cpu_s() - cpu_s, 1),
        "start_mb": round(start),
        "peak_mb": round(memory_mb()["peak_mb"]),
    }
    print(json.dumps({"step": step} | facts), flush=True)


def _cpu_s() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def submit(data: str, storage: str) -> None:
    """Plan a job, save its indices, and read some of its files."""
    Path("model.py").write_text(MODEL)
    flags = TrainFlags(model_def="model.py", training_data=data, storage=storage, minibatch_size=8)
    with measured("submission"):
        submission = prepare(flags, Path("jobs"), lambda _: None)
        submission.save_indices(submission.spec.storage)
        submission.share_indices()
    spec = submission.spec
    del submission
    stores = DataStores(DataCacheSettings(folder=Path("data-cache"), bytes_max=0))
    sources = random.Random(1).sample(range(len(spec.plan.sources)), min(READS, len(spec.plan.sources)))
    reader = open_reader(spec.plan, spec.data, spec.storage, stores)
    with measured(f"reading of {len(sources)} files"):
        for number in sources:
            reader.read(Shard(source=number, start=3, end=5))


def requests_of(endpoint: str) -> dict[str, int]:
    """How often each kind of request was made so far."""
    with urllib.request.urlopen(f"{endpoint}/minio/v2/metrics/cluster") as answer:
        text = answer.read().decode()
    found = re.findall(r'^minio_s3_requests_total\{api="(\w+)"[^}]*\} ([\d.e+]+)', text, re.MULTILINE)
    return {api: int(float(number)) for api, number in found}


@contextmanager
def delayed(endpoint: str, delay_s: float) -> Iterator[str]:
    """The endpoint of a proxy in front of an S3 server, which adds a delay to each request."""
    if not delay_s:
        yield endpoint
        return
    host, _, port = endpoint.removeprefix("http://").partition(":")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy = DelayProxy(listener, (host, int(port)), delay_s / 2)
        threading.Thread(target=proxy.serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def run(flags: argparse.Namespace, server: str, endpoint: str, folder: Path, places: tuple[str, str]) -> None:
    """Write the data, and submit each job in a process of its own, which reaches the server under the endpoint."""
    data, storage = places
    started_s = time.perf_counter()
    write_data(data, range(flags.files), flags.records)
    took_s = round(time.perf_counter() - started_s, 1)
    print(json.dumps({"step": "data", "files": flags.files, "seconds": took_s}), flush=True)
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(folder / "cache")}
    if endpoint:
        environment["AWS_ENDPOINT_URL"] = endpoint
    for job in range(flags.jobs):
        if job and flags.change:
            write_data(data, random.Random(job).sample(range(flags.files), flags.change), flags.records, job)
            added = flags.files + flags.change * (job - 1)
            write_data(data, range(added, added + flags.change), flags.records)
        before = requests_of(server) if server else {}
        command = [sys.executable, "-m", "benchmarks.indexing", "--data", data, "--storage", storage]
        subprocess.run(command, cwd=folder, env=environment, check=True)
        if server:
            time.sleep(12)  # The server counts some seconds later.
            after = requests_of(server)
            counts = {api: number - before.get(api, 0) for api, number in after.items() if number > before.get(api, 0)}
            print(json.dumps({"requests": counts}), flush=True)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--delay_ms", type=float, default=0.0)
    parser.add_argument("--change", type=int, default=0)
    parser.add_argument("--data", default="")
    parser.add_argument("--storage", default="")
    flags = parser.parse_args()
    if flags.data:
        submit(flags.data, flags.storage)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if not flags.s3:
            places = (to_uri(folder / "data"), to_uri(folder / "storage"))
            run(flags, "", "", folder, places)
            return
        os.environ["MINIO_PROMETHEUS_AUTH_TYPE"] = "public"
        with s3_server(folder) as server:
            if server is None:
                raise SystemExit("no S3 server on this machine: make s3-server")
            server.make_bucket("benchmark")
            os.environ.update(server.environment())
            places = ("s3://benchmark/data", "s3://benchmark/jobs")
            with delayed(server.endpoint, flags.delay_ms / 1e3) as endpoint:
                run(flags, server.endpoint, endpoint, folder, places)


if __name__ == "__main__":
    main()
