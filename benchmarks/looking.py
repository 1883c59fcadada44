"""CPU seconds that ``/metrics``, scraped every 5 s, and an open dashboard add to a job, in per cent of the job's own.

    python -m benchmarks.looking [--seconds 40] [--workers 2]

Trains MNIST in one job. The CPU time of all its processes is read over a while by itself, then over a
while with ``elasticdl metrics`` and ``elasticdl dashboard``, whose page is open in Chromium. Both read the log, so the
job's nats-server works for them, too: its part of the job's time is printed for both. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
from playwright.sync_api import sync_playwright
from tests.integration.dashboard.browser import CHROMIUM, FLAGS

ELASTICDL = [sys.executable, "-m", "elasticdl.cli"]
SCRAPE_S = 5.0


def cpu_s(process: psutil.Process) -> dict[str, float]:
    """CPU seconds of a process and of all below it, by what they are; those that have ended are left out."""
    found: dict[str, float] = {}
    for each in (process, *process.children(recursive=True)):
        try:
            name, times = each.name(), each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        kind = "nats-server" if "nats" in name else "others"
        found[kind] = found.get(kind, 0.0) + times.user + times.system
    return found


def used(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """CPU seconds between two readings."""
    return {kind: round(after[kind] - before.get(kind, 0.0), 3) for kind in after}


def line_with(process: subprocess.Popen[str], pattern: str) -> str:
    """The part of a line of a process' output that a pattern finds."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found[0]
    raise SystemExit(f"no {pattern} in the output")


def training(job: str) -> bool:
    """Whether the job trains."""
    done = subprocess.run([*ELASTICDL, "tasks", job, "--json"], capture_output=True, text=True, check=False)
    return done.returncode == 0 and json.loads(done.stdout)["counts"].get("finished", 0) > 20


def looked_at(job: str, process: psutil.Process, seconds: float) -> tuple[dict[str, float], float, float]:
    """CPU seconds of the job, of the two commands without their start, and how long it was; with an open page."""
    exporter = subprocess.Popen([*ELASTICDL, "metrics", job, "--port=19464"], stdout=subprocess.PIPE, text=True)
    server = subprocess.Popen([*ELASTICDL, "dashboard", job, "--port=0"], stdout=subprocess.PIPE, text=True)
    try:
        metrics, page_address = line_with(exporter, r"http://\S+"), line_with(server, r"http://\S+")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            page = browser.new_page()
            page.goto(page_address)
            page.get_by_role("slider").first.wait_for(timeout=120_000)
            urllib.request.urlopen(metrics, timeout=60).close()
            time.sleep(SCRAPE_S)
            lookers = [psutil.Process(each.pid) for each in (exporter, server)]
            before, own = cpu_s(process), [sum(cpu_s(each).values()) for each in lookers]
            began_s = time.monotonic()
            while time.monotonic() < began_s + seconds:
                time.sleep(SCRAPE_S)
                urllib.request.urlopen(metrics, timeout=60).close()
            job_s = used(before, cpu_s(process))
            spent = [sum(cpu_s(each).values()) - start for each, start in zip(lookers, own, strict=True)]
            browser.close()
            return job_s, spent[0], spent[1]
    finally:
        for each in (exporter, server):
            each.terminate()
            each.wait()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["ELASTICDL_RUN_DIR"] = str(folder / "jobs")
        subprocess.run([*ELASTICDL, "zoo", "data", "mnist", str(folder / "mnist")], check=True, capture_output=True)
        command = [*ELASTICDL, "train", "--model_def=mnist_functional_api.custom_model", "--num_epochs=10000"]
        command += [f"--training_data={folder / 'mnist' / 'train'}", f"--num_workers={arguments.workers}"]
        job = subprocess.Popen([*command, "--job_name=looking"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not training("looking"):
                time.sleep(1.0)
            process = psutil.Process(job.pid)
            before = cpu_s(process)
            time.sleep(arguments.seconds)
            alone = used(before, cpu_s(process))
            seen, exporter_s, server_s = looked_at("looking", process, arguments.seconds)
        finally:
            job.terminate()
            job.wait()
    whole_s = sum(seen.values())
    facts = {
        "job_alone": alone,
        "job_looked_at": seen,
        "nats_percent": [round(100 * each["nats-server"] / sum(each.values()), 2) for each in (alone, seen)],
        "metrics_percent": round(100 * exporter_s / whole_s, 2),
        "dashboard_percent": round(100 * server_s / whole_s, 2),
        "load": round(os.getloadavg()[0], 1),
    }
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
