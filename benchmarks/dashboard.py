"""The dashboard's page with a long log, in Chromium: first view, reading, slider, frames, and memory.

    python -m benchmarks.dashboard [--tasks 470000] [--workers 1000] [--file long.edl]

Writes the exported log of a job with that many tasks and workers (``--file`` keeps it, or uses it again), opens it with
``elasticdl dashboard``, and drives the page. 470,000 tasks are about 1,000,000 events. Prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from benchmarks.looking import ELASTICDL, line_with
from benchmarks.views import write_log
from playwright.sync_api import Page, sync_playwright
from tests.integration.dashboard.browser import CHROMIUM, FLAGS

WAIT_MS = 3_600_000
"""How long to wait until the whole log is read."""
MOVES = (0.5, 0.12, 0.95, 0.001, 0.64, 0.31, 0.88)
"""Where the slider is moved to, as parts of the log."""
PLAY_S = 3.0
EPOCHS = 10
"""With those of the recorded job, a long log would have tens of thousands, each with sums in every state."""
FRAMES = """() => {
  window.longest = 0;
  let last = performance.now();
  const frame = (now) => {
    window.longest = Math.max(window.longest, now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}"""
MOVE = """(seq) => new Promise((resolve) => {
  const began = performance.now(), slider = document.querySelector("input[type=range]");
  const look = () => requestAnimationFrame(() => {
    if (document.querySelector(`[data-seq="${seq}"]`)) resolve(performance.now() - began);
    else look();
  });
  slider.value = seq;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  look();
})"""
"""Moves the slider; gives the milliseconds until the page shows its point, with progress, timeline and curves."""


def measured(page: Page, address: str, server: psutil.Process, browser: psutil.Process) -> dict[str, object]:
    """Open the page, wait until the log is read, and use it."""
    began_s = time.monotonic()
    page.goto(address)
    page.locator("[data-seq]").first.wait_for()
    found: dict[str, object] = {"first_view_s": round(time.monotonic() - began_s, 2)}
    page.wait_for_function("() => !document.querySelector('header [role=status]')?.textContent.includes(', read ')")
    found["whole_log_s"] = round(time.monotonic() - began_s, 1)
    spent = server.cpu_times()
    found["server_cpu_s"] = round(spent.user + spent.system, 1)
    events = int(page.locator("input[type=range]").get_attribute("max") or 0)
    page.locator(f"[data-seq='{events}']").wait_for()
    moves_s = []
    for part in MOVES:
        page.wait_for_timeout(1000)  # A person's pause: what the last move asked for is answered.
        moves_s.append(page.evaluate(MOVE, max(1, int(part * events))) / 1000)
    found |= {"events": events, "slider_s": [round(each, 3) for each in (statistics.median(moves_s), max(moves_s))]}
    page.evaluate(FRAMES)
    timeline = page.get_by_label("Timeline of processes").first
    page.get_by_role("button", name="Play").click()
    ends_s = time.monotonic() + PLAY_S
    while time.monotonic() < ends_s:
        timeline.evaluate("element => { element.scrollTop += 300 }")
        page.wait_for_timeout(50)
    found["longest_frame_s"] = round(page.evaluate("window.longest") / 1000, 3)
    page.get_by_role("button", name="Pause").click()
    pages = [each for each in browser.children(recursive=True) if "--type=renderer" in each.cmdline()]
    found["page_heap_mb"] = round(page.evaluate("performance.memory.usedJSHeapSize") / 1e6)
    found["page_process_mb"] = round(max(each.memory_full_info().uss for each in pages) / 1e6)
    found["server_mb"] = round(server.memory_info().rss / 1e6)
    return found


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=470_000)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--file", type=Path, help="use this file again, or keep it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "long.edl"
        if not path.exists():
            write_log(path, arguments.tasks, arguments.workers, EPOCHS)
        command = [*ELASTICDL, "dashboard", str(path), "--port=0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
            try:
                address = line_with(server, r"http://\S+")
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
                page = browser.new_page(viewport={"width": 1280, "height": 1600})
                page.set_default_timeout(WAIT_MS)
                found = measured(page, address, psutil.Process(server.pid), psutil.Process())
                browser.close()
            finally:
                server.terminate()
    sys.stdout.write(json.dumps({**found, "load": round(os.getloadavg()[0], 1)}) + "\n")


if __name__ == "__main__":
    main()
