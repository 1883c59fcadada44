"""The lock of a run directory, held by another process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import JobId


def test_a_lock_is_held_until_its_process_ends(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path, JobId("job-1"))
    run.create()
    code = (
        "import sys\nfrom pathlib import Path\nfrom elasticdl.cli.jobs.run_directory import RunDirectory\n"
        f"with RunDirectory(Path({str(tmp_path)!r}), 'job-1').lock():\n"
        "    print('held', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert run.is_locked()
        with pytest.raises(UserError, match=rf"job job-1 is running \(process {holder.pid}\)"), run.lock():
            pass
        holder.kill()
    assert not run.is_locked()
    with run.lock():
        assert run.is_locked()
