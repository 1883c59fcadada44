"""The dashboard's server: who may ask, what it answers, and that the page is built from its sources."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.histories.logs import FOLDER
from tests.integration.dashboard.served import TOKEN, GrowingJob, SomeJobs
from tests.unit.views.recorded import recorded

from elasticdl.cli.commands.fleet.fleet_file import FleetFile
from elasticdl.dashboard.app import STATIC, Dashboard

ROOT = Path(__file__).parents[3]
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    jobs = SomeJobs({"killed": GrowingJob(recorded("ps-killed")), "plain": GrowingJob(recorded("plain"))})
    app = Dashboard(jobs, TOKEN).app()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as one,
    ):
        yield one


@pytest.fixture
async def reader(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client that knows the token, and whose job is read."""
    client.headers.update(HEADERS)
    while (await client.get("/api/view", params={"job": "killed"})).json()["seq"] < 134:
        await asyncio.sleep(0)
    return client


async def test_only_those_who_know_the_token_are_answered(client: httpx.AsyncClient) -> None:
    for path in ("/", "/static/app.js", "/api/jobs"):
        assert (await client.get(path)).status_code == 401
        assert (await client.get(path, params={"token": "wrong"})).status_code == 401
        assert (await client.get(path, headers=HEADERS)).status_code == 200


async def test_the_token_leaves_the_address(client: httpx.AsyncClient) -> None:
    answer = await client.get("/", params={"token": TOKEN, "job": "killed"})
    assert answer.headers["location"] == "/?job=killed"
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=strict" in answer.headers["set-cookie"]
    assert (await client.get("/")).status_code == 200, "the cookie is enough"


async def test_pages_of_others_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/", headers={**HEADERS, "host": "evil.example"})).status_code == 403
    for host in ("localhost:8000", "127.0.0.1:1", "[::1]:5"):
        assert (await client.get("/", headers={**HEADERS, "host": host})).status_code == 200
    page = await client.get("/", headers=HEADERS)
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", ""), "the page loads nothing from elsewhere"


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
async def test_nothing_can_be_changed(client: httpx.AsyncClient, method: str) -> None:
    assert (await client.request(method, "/api/jobs", headers=HEADERS)).status_code == 405


async def test_errors_say_what_is_wrong(reader: httpx.AsyncClient) -> None:
    for path, params, message in (
        ("view", {"job": "other"}, "there is no job other"),
        ("view", {"job": "killed", "at": "x"}, "at=x is not a number"),
        ("events", {"job": "killed", "type": "Foo"}, "Foo is not a type of event"),
        ("tasks", {"job": "killed", "state": "odd"}, "the filter is wrong"),
    ):
        answer = await reader.get(f"/api/{path}", params=params)
        assert answer.status_code == 400
        assert message in answer.json()["error"]
    assert (await reader.get("/static/other.js")).status_code == 404


async def test_every_panel_answers_at_every_point(reader: httpx.AsyncClient) -> None:
    for at in (0, 1, 3, 12, 39, 44, 102, 134, 1000):
        for path in (
            "view",
            "events",
            "tasks",
            "task?number=3",
            "tasks?slowest=3",
            "tasks?state=finished",
            "pods",
            "why",
        ):
            answer = await reader.get(f"/api/{path}", params={"job": "killed", "at": str(at)} | _query(path))
            assert answer.status_code == 200, (path, at, answer.text)
    assert (await reader.get("/api/curves", params={"job": "killed"})).json()["points"]


def _query(path: str) -> dict[str, str]:
    """httpx replaces the query of an address that is given parameters."""
    return dict([path.partition("?")[2].split("=")]) if "?" in path else {}


async def test_a_view_is_the_state_at_its_point(reader: httpx.AsyncClient) -> None:
    view = (await reader.get("/api/view", params={"job": "killed", "at": 39})).json()
    assert (view["seq"], view["state"], view["progress"]["ps"]) == (39, "training", [1, 2])
    found = (await reader.get("/api/events", params={"job": "killed", "at": 39, "type": "PsLost"})).json()
    assert [each["seq"] for each in found["events"]] == [39]
    found = (await reader.get("/api/events", params={"job": "killed", "at": 38, "type": "PsLost"})).json()
    assert found == {"events": [], "more": False}
    rows = (await reader.get("/api/timeline", params={"job": "killed"})).json()["spans"]
    assert ["ps-0", "away", "preempted"] in [[row[0], row[1], row[6]] for row in rows]


async def test_processes_come_in_windows(reader: httpx.AsyncClient) -> None:
    found = (await reader.get("/api/pods", params={"job": "killed", "text": "W", "from": 1, "limit": 1})).json()
    assert (found["count"], found["from"], [row["name"] for row in found["rows"]]) == (2, 1, ["worker-1"])


async def test_two_jobs_are_compared(reader: httpx.AsyncClient) -> None:
    while True:
        found = (await reader.get("/api/compare", params={"job": "killed", "with": "plain"})).json()
        if all(each["total"] == each["read"] > 0 for each in found["read"]):
            break
        await asyncio.sleep(0)
    assert found["states"] == ["succeeded", "succeeded"]
    assert ["ps", "2", "1"] in found["settings"]
    names = [row[0] for row in found["numbers"]]
    assert names[:2] == ["wall time", "useful"] and "records per second" in names
    assert (await reader.get("/api/compare", params={"job": "killed", "with": "other"})).status_code == 400


async def test_a_fleet_is_shown_at_each_decision() -> None:
    board = Dashboard(SomeJobs({}), TOKEN, fleet=FleetFile(FOLDER / "fleets/two-jobs.fleet"))
    app = board.app()
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=HEADERS) as client,
    ):
        assert (await client.get("/api/jobs")).json()["fleet"] is True
        while (found := (await client.get("/api/fleet")).json())["number"] < 16:
            await asyncio.sleep(0)
        assert found["resources"][0][:3] == ["cpu", 21000, 13000]
        assert (await client.get("/api/fleet", params={"at": 3})).json()["number"] == 3
        curves = (await client.get("/api/fleet/curves")).json()
        assert curves["counts"]["requested/CPU, %"] == len(curves["points"]["requested/CPU, %"]) == 16


async def test_a_dashboard_without_a_fleet_says_so(reader: httpx.AsyncClient) -> None:
    answer = await reader.get("/api/fleet")
    assert answer.status_code == 400 and "this dashboard shows no fleet" in answer.json()["error"]


async def test_the_overview_has_all_jobs(client: httpx.AsyncClient) -> None:
    jobs = (await client.get("/api/jobs", headers=HEADERS)).json()
    assert [row["key"] for row in jobs["jobs"]] == ["killed", "plain"]


def test_the_built_page_is_that_of_its_sources() -> None:
    """``web/build.mjs`` leaves the digest of what it has built from; this is the same without Node.js."""
    web = ROOT / "web"
    names = [f"src/{path.name}" for path in (web / "src").iterdir()]
    names += ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.encode() + b"\0" + (web / name).read_bytes() + b"\0")
    assert (STATIC / "sources.txt").read_text().strip() == digest.hexdigest(), "run: make web"


def test_the_lock_file_names_no_registry() -> None:
    locked = json.loads((ROOT / "web/package-lock.json").read_text())
    assert [name for name, each in locked["packages"].items() if "resolved" in each] == []
    assert all("integrity" in each for name, each in locked["packages"].items() if name)
