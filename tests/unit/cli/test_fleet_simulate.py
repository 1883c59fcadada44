"""``elasticdl fleet simulate --html``: the results of a simulation as one page."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from elasticdl.cli.main import app


def test_the_page_has_the_results_the_jobs_and_a_curve_of_each_policy(tmp_path: Path) -> None:
    path = tmp_path / "two.html"
    printed = CliRunner().invoke(app, ["fleet", "simulate", "two-jobs", f"--html={path}"], catch_exceptions=False)
    text = path.read_text()
    assert printed.exit_code == 0
    finished = re.search(r"all jobs finished\D+(\d+) s", printed.output)
    assert finished and f"{finished[1]} s" in text
    for policy in ("ours", "gang", "edl"):
        assert f"Jobs under the policy {policy}" in text
        assert f"<figcaption>{policy}: requested CPU, percent" in text
    assert len(re.findall("<polyline", text)) == 6
    assert "http://" not in text and "<script" not in text
