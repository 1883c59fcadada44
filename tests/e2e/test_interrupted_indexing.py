"""The client is interrupted or killed while it indexes data: it leaves nothing that a later job takes for an index."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.deadline import Gate
from tests.e2e.elastic import Elastic, left_behind
from tests.e2e.models import write_model

from elasticdl.cli.indexing.scanning import SMALL_FILES

FILES = SMALL_FILES + 200
WAITS_ONCE = """
import os
import sys

if "elasticdl.cli.indexing" in sys.orig_argv:
    try:
        os.mkdir("{folder}/waits")
    except FileExistsError:
        pass
    else:
        open("{folder}/started", "w").write("yes")
        open("{folder}/continue").read()
"""
"""Python runs it when a process starts. The first process that indexes files waits, and so does the client for it."""


@pytest.fixture
def job(elastic: Elastic) -> list[str]:
    """Flags of a job whose data takes several processes to index."""
    folder = elastic.folder
    for name in ("temporary", "data", "python"):
        (folder / name).mkdir()
    (folder / "python" / "sitecustomize.py").write_text(WAITS_ONCE.format(folder=folder))
    os.mkfifo(folder / "continue")
    elastic.environment |= {"TMPDIR": str(folder / "temporary"), "PYTHONPATH": str(folder / "python")}
    write_model(folder)
    for number in range(FILES):
        (folder / "data" / f"{number:04}.csv").write_text(f"a,b,c,y\n{number % 2},1,0,{number % 3 % 2}\n")
    return ["--model_def=model.py", "--training_data=data", "--storage=jobs-storage", "--num_workers=1"]


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one process indexes alone")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_an_interrupted_index(elastic: Elastic, job: list[str], number: signal.Signals) -> None:
    indexing = Gate(elastic.folder / "started")
    with elastic.start("train", *job) as running:
        indexing.wait()
        running.process.send_signal(number)
        code = running.wait()
        if number is signal.SIGKILL:
            assert code == -signal.SIGKILL
            (elastic.folder / "continue").write_text("now")
            elastic.wait_until_gone()
        else:
            assert code == 130
            running.wait_for("Interrupted before training began; nothing is left of the job.\n$")
    assert "Traceback" not in running.output
    assert left_behind(elastic.folder) == []
    assert not list(elastic.jobs.glob("*"))
    assert files_in(elastic.folder / "jobs-storage") == []
    assert files_in(elastic.folder / "temporary") == []

    outcome = elastic.train(*job)
    assert "index of another job" not in outcome.output
    assert outcome.report["audit"]["records"] == FILES
    assert "No file has changed" in elastic.run("train", "--dry_run", *job).output
