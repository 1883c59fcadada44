"""Jobs with AllreduceStrategy: the model of one process, whichever worker dies."""

from __future__ import annotations

import json
import re
import signal

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
        assert "no parameter servers to scale" in refused.output
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
def test_a_deterministic_job_ends_in_the_same_bits_with_any_number_of_workers(elastic: Elastic) -> None:
    write_model(elastic.folder, MODEL)
    data = write_data(elastic.folder, RECORDS)
    weights = []
    for workers in (1, 2):
        flags = [*FLAGS, f"--training_data={data}", "--deterministic", "--export_weights", "--seed=5"]
        outcome = elastic.run("train", *flags, f"--num_workers={workers}", f"--output=weights-{workers}")
        assert outcome.exit_code == 0, outcome.output
        (file,) = (elastic.folder / f"weights-{workers}").glob("*.weights.h5")
        weights.append(file)
    with h5py.File(weights[0]) as one, h5py.File(weights[1]) as other:
        found: list[str] = []
        one.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        assert found
        for name in found:
            np.testing.assert_array_equal(one[name][()], other[name][()])
