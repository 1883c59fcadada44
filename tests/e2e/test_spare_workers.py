"""Processes that wait to take the place of a worker that dies."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.deadline import DEADLINE_S
from tests.e2e.elastic import Elastic
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.test_allreduce import FLAGS, RECORDS, ROUNDS
from tests.e2e.test_synchronous import MODEL


def wait_for_file(path: Path) -> None:
    give_up_s = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < give_up_s, f"there is no {path}"
        time.sleep(0.05)


def test_a_spare_takes_the_place_of_a_worker_that_dies(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=1.5))
    data = write_data(elastic.folder, RECORDS)
    report = elastic.folder / "report.json"
    flags = [*FLAGS, f"--training_data={data}", "--num_workers=2", "--spare_workers=1", f"--report={report}"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        spares = elastic.jobs / elastic.job / "spares"
        wait_for_file(spares / "ready-0")
        spare = int((spares / "ready-0").read_text())
        os.kill(elastic.pid("worker-1"), signal.SIGKILL)
        running.wait_for("worker-1 died")
        wait_for_file(spares / "environment-1")  # The next spare.
        assert elastic.pid("worker-1") == spare
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    audit = json.loads(report.read_text())["audit"]
    assert audit["exact"] is True
    assert audit["repaired"] == 0
    assert audit["replicas"] == []
    ROUNDS.check_model(elastic.folder, data)
