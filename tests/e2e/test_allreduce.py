"""Jobs with AllreduceStrategy: the model of one process, whichever worker dies."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.models import slowly, write_data, write_model
from tests.e2e.one_process import Rounds
from tests.e2e.test_scaling import EMBEDDING
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
    leaders: list[str] = re.findall(r"FormRing .*?members=\((worker-\d+)", printed)
    return leaders[-1]


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


@pytest.mark.thorough
def test_a_job_is_scaled_stopped_and_resumed(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(MODEL, batch_s=0.3))
    data = write_data(elastic.folder, RECORDS)
    flags = [*FLAGS, f"--training_data={data}", f"--validation_data={data}", "--num_workers=2"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        assert elastic.run("scale", elastic.job, "--workers=3").exit_code == 0
        running.wait_for("The ring has 3 workers")
        refused = elastic.run("scale", elastic.job, "--ps=2")
        assert refused.exit_code == 2
        assert "can't be changed" in refused.output
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
    elastic.remove_delay()
    report = elastic.folder / "report.json"
    resumed = elastic.run("resume", elastic.job, f"--report={report}")
    assert resumed.exit_code == 0, resumed.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True
    assert facts["audit"]["repaired"] == 0
    pinned = re.findall(r"validation at step (\d+) \(end of epoch (\d+)\)", running.output + resumed.output)
    assert pinned
    assert [int(step) for step, _ in pinned] == [int(epoch) * RECORDS // BATCH for _, epoch in pinned]
    ROUNDS.check_model(elastic.folder, data)


def test_a_model_that_needs_parameter_servers_is_refused_by_name(elastic: Elastic) -> None:
    write_model(elastic.folder, EMBEDDING)
    data = write_data(elastic.folder, records=64)
    outcome = elastic.run(
        "train", "--model_def=model.py", f"--training_data={data}", "--distribution_strategy=AllreduceStrategy"
    )
    assert outcome.exit_code == 1
    assert "elasticdl.layers.Embedding keeps its rows on parameter servers" in outcome.output


@pytest.mark.thorough
def test_a_deterministic_job_ends_in_the_same_bits_under_kills_and_scaling(elastic: Elastic) -> None:
    """1, 2 and 3 workers; 2 -> 1 -> 3 workers with kills of the leader and of another member."""
    write_model(elastic.folder, slowly(MODEL, batch_s=1.5))
    elastic.remove_delay()
    data = write_data(elastic.folder, RECORDS)
    shared = [*FLAGS, f"--training_data={data}", "--deterministic", "--export_weights", "--seed=5"]
    for workers in (1, 2, 3):
        outcome = elastic.run("train", *shared, f"--num_workers={workers}", f"--output=weights-{workers}")
        assert outcome.exit_code == 0, outcome.output
        shutil.rmtree(elastic.jobs)
    (elastic.folder / "remove_delay").unlink()
    report = elastic.folder / "kills.json"
    flags = [*shared, "--num_workers=2", "--spare_workers=1", "--output=weights-kills", f"--report={report}"]
    with elastic.start("train", *flags) as running:
        running.wait_for_progress()
        elastic.kill(leader(elastic))
        running.wait_for(r"died[\s\S]*The ring has 2 workers: ")
        assert elastic.run("scale", elastic.job, "--workers=1").exit_code == 0
        running.wait_for(r"died[\s\S]*The ring has 2 workers: [\s\S]*The ring has 1 worker: ")
        assert elastic.run("scale", elastic.job, "--workers=3").exit_code == 0
        running.wait_for("The ring has 3 workers: ")
        elastic.kill("worker-2")
        running.wait_for("worker-2 died")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    audit = json.loads(report.read_text())["audit"]
    assert (audit["exact"], audit["repaired"], audit["replicas"]) == (True, 0, [])
    files = [next((elastic.folder / f"weights-{which}").glob("*.weights.h5")) for which in ("1", "2", "3", "kills")]
    first, *others = [weights_in(file) for file in files]
    assert first
    for other in others:
        assert other.keys() == first.keys()
        for name, values in first.items():
            np.testing.assert_array_equal(other[name], values)


def weights_in(file: Path) -> dict[str, Any]:
    """The arrays of a file of weights."""
    found: dict[str, Any] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = item[()]

    with h5py.File(file) as opened:
        opened.visititems(visit)
    return found
