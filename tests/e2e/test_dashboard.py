"""The dashboard's page with a log of 1,000 workers and 100,000 events."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.histories.long import long_log
from tests.integration.dashboard.browser import chromium, needs_chromium, page_of
from tests.integration.dashboard.served import TOKEN, GrowingJob, served

WORKERS, TASKS = 1_000, 48_000
WAIT_MS = 600_000
"""How long the test waits until the whole log is read: machines may be slow."""
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


@needs_chromium
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_a_thousand_workers_and_a_hundred_thousand_events() -> None:
    records = list(long_log(TASKS, WORKERS))
    assert len(records) >= 100_000
    found: dict[str, float] = {}
    with served({"long": GrowingJob(records)}, only="long") as address, chromium() as browser, page_of(browser) as page:
        page.set_default_timeout(WAIT_MS)
        found["first_view_s"] = _seconds(page, lambda: _open(page, address))
        found["whole_log_s"] = found["first_view_s"] + _seconds(page, lambda: _at(page, len(records)))
        expect(page.get_by_label("Timeline of processes").get_by_role("img")).to_have_attribute(
            "aria-label", f"{WORKERS + 2} processes, 0 exits", timeout=WAIT_MS
        )
        moves = [page.evaluate(MOVE, at) for at in (50_000, 12_345, 99_999, 77, 64_000, 31_313, 88_888)]
        found["slider_s"] = round(sorted(moves)[len(moves) // 2] / 1000, 3)
        found["slider_slowest_s"] = round(max(moves) / 1000, 3)
        page.evaluate(FRAMES)
        page.get_by_label("Timeline of processes").evaluate("element => { element.scrollTop = 9000 }")
        page.get_by_role("button", name="Play").click()
        page.wait_for_timeout(3000)
        page.get_by_role("button", name="Pause").click()
        found["longest_frame_s"] = page.evaluate("window.longest") / 1000
        found["page_bytes"] = page.evaluate("performance.memory.usedJSHeapSize")
        page.get_by_label("state").first.select_option("finished")
        expect(page.get_by_role("row", name="finished").first).to_be_visible(timeout=WAIT_MS)
    sys.stdout.write(json.dumps(found) + "\n")


def _open(page: Page, address: str) -> None:
    page.goto(f"{address}/?token={TOKEN}")
    page.locator("[data-seq]").wait_for()


def _at(page: Page, seq: int) -> None:
    page.locator(f"[data-seq='{seq}']").wait_for()


def _seconds(page: Page, action: Callable[[], object]) -> float:
    """By the clock of the browser."""
    began_ms = float(page.evaluate("Date.now()"))
    action()
    return round((float(page.evaluate("Date.now()")) - began_ms) / 1000, 3)
