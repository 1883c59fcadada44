"""The process that runs a script's jobs, as the script sees it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.script import launcher
from elasticdl.cli.script.launcher import Launchers
from elasticdl.cli.script.places import LocalPlace
from elasticdl.shared.job.script_options import ScriptFlags
from elasticdl.shared.kubernetes.options import KubernetesFlags

REPORTING = """
import os

os.mkdir("job-1")
open("job-1/job.json", "w").close()
os.write(0, b"{}\\n")
while os.read(0, 65536):
    pass
"""
"""A job that begins, tells how far it is, and continues until the script ends."""


def test_a_job_that_runs_keeps_its_folder_when_its_progress_can_not_be_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "module_command", lambda _: [sys.executable, "-c", REPORTING])

    def show(_: Mapping[str, Any]) -> None:
        raise BrokenPipeError

    launchers = Launchers(ScriptFlags(), KubernetesFlags(), tmp_path, LocalPlace(tmp_path))
    with launchers, pytest.raises(BrokenPipeError):
        launchers.run("job-1", {}, quiet=False, replace=("", ""), show=show)
    assert (tmp_path / "job-1" / "job.json").exists()
