"""What is printed where nobody looks at columns, or nobody reads any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.cli.commands.jobs import list_jobs
from elasticdl.cli.jobs.run_directory import JobRecord, RunDirectory
from elasticdl.shared.names import JobId

TALKER = """
import sys
from elasticdl.cli.display.consoles import JobConsole
console = JobConsole()
console.print("first", soft_wrap=True)
sys.stdin.read()
console.print("second")
console.print("third")
print("went on", file=sys.stderr)
"""


def test_a_job_goes_on_when_nobody_reads_what_it_prints() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TALKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as talker:
        assert talker.stdin is not None and talker.stdout is not None and talker.stderr is not None
        assert talker.stdout.readline() == b"first\n"
        talker.stdout.close()
        talker.stdin.close()
        assert talker.stderr.read() == b"went on\n"
        assert talker.wait() == 0


def test_a_list_of_jobs_is_not_wrapped_in_a_pipe_and_shows_damaged_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = "/data/" + "long/" * 40 + "train"
    for name in ("job-1", "job-2"):
        run = RunDirectory(tmp_path, JobId(name))
        run.create()
        run.write(JobRecord(job=run.job, created_s=1.0, state="succeeded", model="m.py:f", training_data=data))
    (tmp_path / "job-2" / "job.json").write_text("")
    list_jobs(tmp_path)
    printed = capsys.readouterr().out
    (line,) = [line for line in printed.splitlines() if "job-1" in line]
    assert data in line
    assert "damaged" in next(line for line in printed.splitlines() if "job-2" in line)
    assert "job.json is damaged" in printed and "train anew and delete the folder" in printed
