"""Processes that wait to take the place of a worker that dies."""

from __future__ import annotations

import json
import re

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
        running.wait_for("worker-2, a spare worker, is ready")
        status = json.loads(elastic.run("status", elastic.job, "--json").output)
        assert status["pods"]["worker-2"]["phase"] == "waiting"
        spare, survivor = elastic.pids("worker-2", "worker-0")
        elastic.kill("worker-1")
        running.wait_for("worker-2, a spare worker, takes the place of worker-1")
        running.wait_for(r"takes the place[\s\S]*The ring has 2 workers")
        assert elastic.pids("worker-2", "worker-0") == [spare, survivor]
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    audit = json.loads(report.read_text())["audit"]
    assert audit["exact"] is True
    assert audit["repaired"] == 0
    assert audit["replicas"] == []
    ROUNDS.check_model(elastic.folder, data)
    printed = elastic.run("events", elastic.job).output
    promoted = printed.partition("PromoteWorker worker=worker-2")[2].partition("replaces=worker-1")[2]
    until_whole, _, after = promoted.partition("FormRing")[2].partition("members=(worker-0, worker-2)")
    assert after, printed
    assert "PodStarted" not in until_whole  # No process has to import anything before the ring is whole,
    until_step = re.split(r"worker-2 Tasks?Finished", after)[0]
    assert "FormRing" not in until_step  # and these two members commit the next rounds.
