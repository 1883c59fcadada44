"""The client is interrupted or killed while it indexes data: it leaves nothing that a later job takes for an index."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil
import pytest
from tests.deadline import DEADLINE_S
from tests.e2e.elastic import Elastic, left_behind
from tests.e2e.models import write_model

from elasticdl.cli.indexing.scanning import SMALL_FILES

FILES = SMALL_FILES + 200


@pytest.fixture
def job(elastic: Elastic) -> list[str]:
    """Flags of a job whose data takes several processes to index."""
    temporary = elastic.folder / "temporary"
    for folder in (temporary, elastic.folder / "data"):
        folder.mkdir()
    elastic.environment["TMPDIR"] = str(temporary)
    write_model(elastic.folder)
    for number in range(FILES):
        (elastic.folder / "data" / f"{number:04}.csv").write_text(f"a,b,c,y\n{number % 2},1,0,{number % 3 % 2}\n")
    return ["--model_def=model.py", "--training_data=data", "--storage=jobs-storage", "--num_workers=1"]


def suspended_scanner(client: psutil.Process) -> psutil.Process:
    """A process that the client has just started to index files. It is suspended, so that the client waits for it."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and client.is_running():
        for child in client.children():
            if "elasticdl.cli.indexing" in child.cmdline():
                child.suspend()
                return child
        time.sleep(0.01)  # Polling another process, which has no event to wait for.
    raise AssertionError("the client did not start to index")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one process indexes alone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_index(elastic: Elastic, job: list[str], number: signal.Signals) -> None:
    with elastic.start("train", *job) as running:
        scanner = suspended_scanner(psutil.Process(running.process.pid))
        running.process.send_signal(number)
        code = running.wait()
        if number is signal.SIGKILL:
            assert code == -signal.SIGKILL
            with suppress(psutil.NoSuchProcess):  # The kernel has killed it with the client, if it had got so far.
                scanner.resume()
            elastic.wait_until_gone()
        else:
            assert code == 130
            running.wait_for("Interrupted before training began; nothing is left of the job.\n$")
    assert "Traceback" not in running.output
    assert left_behind(elastic.folder) == []
    assert not list(elastic.jobs.glob("*"))
    assert not [path for path in (elastic.folder / "jobs-storage").rglob("*") if path.is_file()]
    assert not [path for path in (elastic.folder / "temporary").rglob("*") if path.is_file()]

    outcome = elastic.train(*job)
    assert "index of another job" not in outcome.output
    assert outcome.report["audit"]["records"] == FILES
    assert "No file has changed" in elastic.run("train", "--dry_run", *job).output
