"""The object store goes away while a job trains: killed and started again, frozen and thawed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.servers.s3 import S3Server, s3_server
from tests.e2e.elastic import Elastic
from tests.e2e.models import SLOW, write_data, write_model

BUCKET = "elasticdl-outages"


@pytest.fixture
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of the test's own, which may be ill-treated."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        if server is None:
            pytest.skip("no S3 server can be had")
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture
def flags(elastic: Elastic, store: S3Server) -> list[str]:
    """A job that saves its state to the server every few steps."""
    elastic.environment.update(store.environment())
    write_model(elastic.folder, SLOW)
    write_data(elastic.folder, records=20_000)
    return [
        "--model_def=model.py",
        "--training_data=data",
        f"--storage=s3://{BUCKET}/jobs",
        "--minibatch_size=32",
        "--checkpoint_steps=20",
    ]


def exact(report: Path) -> None:
    text = report.read_text()
    assert re.search(r'"exact": true', text), text
    assert re.search(r'"repaired": 0', text), text


@pytest.mark.thorough
def test_a_ps_that_dies_during_an_outage_waits_for_its_end(elastic: Elastic, store: S3Server, flags: list[str]) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *flags, "--report", str(report)) as running:
        running.wait_for_progress()
        store.signal(signal.SIGKILL)
        elastic.kill("ps-0")
        running.wait_for("ps-0 died")
        store.start()
        running.wait_for("ps-0 restored")
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    exact(report)


@pytest.mark.parametrize(
    "frozen", [pytest.param(False, id="killed"), pytest.param(True, id="frozen", marks=pytest.mark.thorough)]
)
def test_during_an_outage_training_goes_on_and_snapshots_are_late(
    elastic: Elastic, store: S3Server, flags: list[str], frozen: bool
) -> None:
    report = elastic.folder / "report.json"
    with elastic.start("train", *flags, "--report", str(report)) as running:
        running.wait_for_progress()
        store.signal(signal.SIGSTOP if frozen else signal.SIGKILL)
        elastic.remove_delay()
        running.wait_for("Training finished")
        if frozen:
            store.signal(signal.SIGCONT)
        else:
            store.start()
        assert running.wait() == 0, running.output
    exact(report)
