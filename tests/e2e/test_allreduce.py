"""Jobs with AllreduceStrategy: the model of one process, whichever worker dies."""

from __future__ import annotations

import json
import re

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.one_process import Rounds
from tests.e2e.test_synchronous import MODEL

BATCH, PER_TASK, COHORT, RECORDS, EPOCHS = 8, 4, 3, 240, 4
ROUNDS = Rounds(records=RECORDS, batch=BATCH, per_task=PER_TASK, cohort=COHORT, epochs=EPOCHS)
FLAGS = (
    "--model_def=model.py",
    "--distribution_strategy=AllreduceStrategy",
    f"--grads_to_wait={COHORT}",
    f"--minibatch_size={BATCH}",
    f"--num_minibatches_per_task={PER_TASK}",
    f"--num_epochs={EPOCHS}",
    "--shuffle=none",
    "--output=output",
)


def leader(elastic: Elastic) -> str:
    """The worker that serves the model now."""
    printed = elastic.run("events", elastic.job).output
    return re.findall(r"FormRing .*?worker='(worker-\d+)'", printed)[-1]


def ring_of(elastic: Elastic, size: int) -> str:
    return rf"ring of {size}"


@pytest.mark.parametrize("killed", ["member", "leader", pytest.param("master", marks=pytest.mark.thorough)])
def test_the_model_is_that_of_one_process_whichever_process_dies(elastic: Elastic, killed: str) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=0.3))
    data = write_data(elastic.folder, RECORDS)
    report = elastic.folder / "report.json"
    flags = [*FLAGS, f"--training_data={data}", "--num_workers=2", f"--report={report}"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        first = leader(elastic)
        second = "worker-1" if first == "worker-0" else "worker-0"
        pod = {"member": second, "leader": first, "master": "master"}[killed]
        elastic.kill(pod)
        running.wait_for(f"{pod} died|master was killed")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    assert facts["audit"]["repaired"] == 0
    ROUNDS.check_model(elastic.folder, data)
