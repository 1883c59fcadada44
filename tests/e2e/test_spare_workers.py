"""Processes that wait to take the place of a worker that dies."""

from __future__ import annotations

import json
import os
import signal

from tests.e2e.elastic import Elastic
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.test_allreduce import FLAGS, RECORDS, ROUNDS
from tests.e2e.test_synchronous import MODEL


def test_a_spare_takes_the_place_of_a_worker_that_dies(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=1.5))
    data = write_data(elastic.folder, RECORDS)
    report = elastic.folder / "report.json"
    flags = [*FLAGS, f"--training_data={data}", "--num_workers=2", "--spare_workers=1", f"--report={report}"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        spares = elastic.jobs / elastic.job / "spares"
        running.wait_for("A spare worker is ready")
        spare = int((spares / "ready-0").read_text())
        os.kill(elastic.pid("worker-1"), signal.SIGKILL)
        running.wait_for("worker-1 died")
        running.wait_for(r"died[\s\S]*The ring has 2 workers")
        assert elastic.pid("worker-1") == spare
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    audit = json.loads(report.read_text())["audit"]
    assert audit["exact"] is True
    assert audit["repaired"] == 0
    assert audit["replicas"] == []
    ROUNDS.check_model(elastic.folder, data)
