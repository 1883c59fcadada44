"""axe-core finds nothing on the dashboard's pages that keeps people with screen readers or keyboards from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page
from tests.integration.dashboard.browser import chromium, needs_chromium, page_of
from tests.integration.dashboard.served import TOKEN, GrowingJob, served
from tests.unit.views.recorded import recorded

AXE = Path(__file__).parents[3] / "web/node_modules/axe-core/axe.min.js"
pytestmark = [needs_chromium, pytest.mark.skipif(not AXE.exists(), reason="there is no axe-core: make web")]


def violations(page: Page) -> list[str]:
    """Each broken rule with the elements that break it."""
    page.evaluate(AXE.read_text())  # The page's policy allows no scripts of others, so that the browser runs it.
    found: list[dict[str, Any]] = page.evaluate("axe.run().then((result) => result.violations)")
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_of_jobs_can_be_used_by_everybody(scheme: str) -> None:
    jobs = {"killed": GrowingJob(recorded("ps-killed")), "plain": GrowingJob(recorded("plain"))}
    with chromium() as browser, page_of(browser) as page, served(jobs) as address:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("table").first.wait_for()
        assert "\n".join(violations(page)) == ""
        page.goto(f"{address}/?job=killed")
        page.locator("[data-seq='134']").wait_for()
        assert "\n".join(violations(page)) == ""
