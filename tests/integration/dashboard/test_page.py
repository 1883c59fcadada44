"""The dashboard's page in a real browser: slider, filters, a log that grows, and no errors on its console."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.histories.logs import FOLDER
from tests.integration.dashboard.browser import WAIT_MS, chromium, needs_chromium, page_of
from tests.integration.dashboard.served import TOKEN, GrowingJob, served
from tests.unit.master.test_rings import three_workers
from tests.unit.views.recorded import job_of, recorded

from elasticdl.cli.commands.fleet.fleet_file import FleetFile
from elasticdl.controller.history.log_file import LogFile
from elasticdl.shared.messages.events import ExitCause

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with page_of(browser) as page:
        yield page


def shows(page: Page, text: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=WAIT_MS)


def test_the_slider_shows_the_state_at_its_point(page: Page) -> None:
    with served({"killed": GrowingJob(recorded("ps-killed"))}, only="killed") as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.locator("[data-seq='134']").wait_for()
        assert "token" not in page.url
        assert page.locator(".state").first.inner_text() == "succeeded"
        shows(page, "computing batches again that a lost ps had absorbed")
        page.get_by_label("Event", exact=True).fill("39")
        page.locator("[data-seq='39']").wait_for()
        assert page.url.endswith("?at=39")
        shows(page, "PodExited pod=ps-0")
        assert page.locator(".state").first.inner_text() == "training"
        expect(page.get_by_text("computing batches again")).to_have_count(0, timeout=WAIT_MS)
        page.get_by_label("Next event").click()
        page.locator("[data-seq='40']").wait_for()
        page.reload()
        page.locator("[data-seq='40']").wait_for()
        page.get_by_role("button", name="End").click()
        page.locator("[data-seq='134']").wait_for()
        assert "at=" not in page.url
        page.get_by_role("button", name="Play").click()
        page.locator("[data-seq='134']").wait_for()
        page.get_by_label("Timeline of processes").press("+")
        page.get_by_role("button", name="whole job").wait_for()
        page.get_by_label("Timeline of processes").press("0")
        shows(page, "Drag or press + to zoom")


def test_tables_have_filters_and_lead_to_events(page: Page) -> None:
    with served({"killed": GrowingJob(recorded("ps-killed"))}, only="killed") as address:
        page.goto(f"{address}/?token={TOKEN}")
        events = page.locator("table.events tbody tr")
        page.get_by_label("type").fill("PsLost")
        page.get_by_label("type").blur()
        expect(events).to_have_count(1, timeout=WAIT_MS)
        page.get_by_label("slowest first").check()
        shows(page, "worker-0")
        page.get_by_label("Story of task 0").click()
        shows(page, "dispatched again (dispatch 2)")
        page.get_by_label("Go to event 39").click()
        page.locator("[data-seq='39']").wait_for()


def test_a_log_that_grows_is_followed(page: Page) -> None:
    job = GrowingJob(recorded("worker-killed"), 30)
    with served({"one": job, "two": GrowingJob(recorded("plain"))}) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("button", name="one").click()
        page.locator("[data-seq='30']").wait_for()
        shows(page, "live")
        job.log.grow(40)
        page.locator("[data-seq='40']").wait_for()
        page.get_by_label("Event", exact=True).fill("12")
        page.locator("[data-seq='12']").wait_for()
        job.log.grow(len(recorded("worker-killed")))
        page.get_by_role("button", name="End").click()
        shows(page, "succeeded")
        page.get_by_role("button", name="All jobs").click()
        page.get_by_role("button", name="two").click()
        shows(page, "succeeded")


def test_two_jobs_are_compared(page: Page) -> None:
    jobs = {name: GrowingJob(recorded(name)) for name in ("ps-killed", "plain", "scaled")}
    with served(jobs) as address:
        page.goto(f"{address}/?token={TOKEN}")
        expect(page.get_by_role("button", name="Compare")).to_be_disabled()
        for name in ("plain", "scaled", "ps-killed"):
            page.get_by_label(f"Compare {name}").check()
        expect(page.get_by_label("Compare plain")).not_to_be_checked()
        page.get_by_role("button", name="Compare").click()
        assert page.url.endswith("?job=scaled&with=ps-killed")
        expect(page.get_by_role("row", name="processes started again 0 1")).to_be_visible(timeout=WAIT_MS)
        expect(page.get_by_role("row", name="ps 1 2")).to_be_visible()
        names = [job_of(recorded(name)) for name in ("scaled", "ps-killed")]
        chart = page.get_by_role("img", name="workers")
        expect(chart).to_have_attribute("aria-label", f"workers: {names[0]} 3, {names[1]} 2", timeout=WAIT_MS)
        page.get_by_label("over").select_option("time")
        page.go_back()
        page.get_by_label("Compare plain").wait_for()


def test_the_placement_and_the_ring_follow_the_slider(page: Page) -> None:
    ring = three_workers()
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    with served({"scaled": GrowingJob(recorded("scaled")), "ring": GrowingJob(ring.log)}) as address:
        page.goto(f"{address}/?token={TOKEN}&job=scaled")
        placed = page.get_by_label("Placement of the model").get_by_role("img")
        expect(placed).to_have_attribute("aria-label", "Version 2: ps-0: 0-127; ps-1: 128-255", timeout=WAIT_MS)
        page.get_by_label("Event", exact=True).fill("50")
        expect(placed).to_have_attribute("aria-label", "Version 1: ps-0: 0-255", timeout=WAIT_MS)
        page.goto(f"{address}/?job=ring")
        rows = page.get_by_role("region", name="Generations of the ring").locator("tbody tr")
        expect(rows).to_have_count(4, timeout=WAIT_MS)
        expect(rows.first).to_contain_text("worker-1, worker-2")
        rows.nth(1).get_by_role("button").click()
        expect(rows).to_have_count(3, timeout=WAIT_MS)


def test_a_fleet_is_followed_and_replayed(page: Page, tmp_path: Path) -> None:
    path = tmp_path / "fleet.log"
    lines = gzip.decompress((FOLDER / "fleets/two-jobs.fleet").read_bytes()).decode().splitlines(keepends=True)
    with closing(LogFile(path)) as log:
        log.append("".join(lines[:6]))
        with served({"job-01": GrowingJob(recorded("plain"))}, fleet=FleetFile(path)) as address:
            page.goto(f"{address}/?token={TOKEN}")
            page.get_by_role("button", name="Fleet").click()
            page.locator("[data-seq='5']").wait_for()
            log.append("".join(lines[6:]))
            page.locator("[data-seq='16']").wait_for()
            jobs = page.get_by_role("region", name="Jobs", exact=True)
            expect(jobs.get_by_role("row", name="job-01")).to_contain_text("10 workers and 2 ps: its maximum")
            page.get_by_label("Go to decision 12").first.click()
            page.locator("[data-seq='12']").wait_for()
            assert page.url.endswith("?fleet=1&at=12")
            page.get_by_label("Decision", exact=True).fill("2")
            page.locator("[data-seq='2']").wait_for()
            page.reload()
            page.locator("[data-seq='2']").wait_for()
            page.get_by_role("button", name="Live").click()
            page.locator("[data-seq='16']").wait_for()
            jobs.get_by_role("button", name="job-01").click()
            page.get_by_role("heading", name=job_of(recorded("plain"))).wait_for()
            page.go_back()
            jobs.get_by_role("row", name="job-01").wait_for()
            page.goto("about:blank")  # The stream of a fleet has no end.
