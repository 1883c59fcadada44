"""Random kills of everything at once: the audit stays exact."""

from __future__ import annotations

import json

from tests.e2e.elastic import Elastic
from tests.e2e.models import SLOW, write_data, write_model


def test_a_job_under_random_kills_is_exact(elastic: Elastic) -> None:
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    report = elastic.folder / "report.json"
    flags = ["--model_def=model.py", "--training_data=data", "--minibatch_size=32", "--num_epochs=2"]
    with elastic.start("train", *flags, "--report", str(report)) as running:
        running.wait_for_progress()
        kills = [
            "--kill=worker:4s",
            "--kill=ps:6s",
            "--kill=master:5s",
            "--kill=nats-server:10s",
            "--kill=ps+master+all-worker:9s",
        ]
        chaos = elastic.run("chaos", elastic.job, *kills, "--duration=15", "--seed=1")
        assert chaos.exit_code == 0, chaos.output
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    facts = json.loads(report.read_text())
    assert facts["audit"]["exact"] is True, running.output
    assert facts["audit"]["repaired"] == 0
    assert sum(service["restarts"] for service in facts["services"].values()) >= 4, chaos.output
    assert 0.0 < facts["goodput"] <= 1.0


def test_rates_are_checked(elastic: Elastic) -> None:
    outcome = elastic.run("chaos", "nobody", "--kill=everything:5s")
    assert outcome.exit_code == 2
    assert "worker:5s" in outcome.output
