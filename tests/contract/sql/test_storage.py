"""Models and rows in object storage: registered once, found from everywhere, and what jobs on Kubernetes are given."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.contract.servers.fixtures import s3_server
from tests.contract.servers.s3 import S3Server
from tests.unit.sql.session_for_tests import Display, Jobs, jobs_of, rows, run, shown

from elasticdl.cli.flag_values import as_flags
from elasticdl.cli.sql.command import registry_of
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.storage import open_store
from elasticdl.sql.attached import Attached
from elasticdl.sql.jobs import JobOfTraining, JobRefusedError, flags_of_command
from elasticdl.sql.registry import FinishedJob, Registry, TrainingRecord
from elasticdl.sql.run import Session
from elasticdl.sql.statements import ModelName, Name

__all__ = ["s3_server"]
TRAINED = "SELECT age, department, income FROM employee LABEL income INTO pay"


@pytest.fixture
def storage(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    s3_server.make_bucket("statements")
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://statements/{secrets.token_hex(6)}"


@pytest.fixture
def session(storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    options = {"platform": "kubernetes", "storage": storage, "namespace": "team"}
    with Attached() as databases:
        registry = registry_of(tmp_path, storage)
        yield Session(databases=databases, registry=registry, jobs=Jobs(), display=Display(), options=options)


def objects(storage: str) -> list[str]:
    return [each.uri.removeprefix(f"{storage}/models/") for each in open_store(storage).list(storage)]


def test_clients_that_register_at_once_get_numbers_of_their_own(storage: str, tmp_path: Path) -> None:
    def register(client: int) -> int:
        registry = Registry(f"{storage}/models", tmp_path / str(client))
        training = registry.begin("pay")
        training.write(TrainingRecord(model="pay", sql=f"SELECT {client}"))
        return registry.register(training, FinishedJob(f"pay-{client}", {"val_loss": 0.5})).version

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(register, range(6))) == [1, 2, 3, 4, 5, 6]
    registry = Registry(f"{storage}/models", tmp_path / "another")
    assert registry.names() == ["pay"]
    assert [each.version for each in registry.versions("pay")] == [1, 2, 3, 4, 5, 6]
    assert registry.drop(ModelName(Name("pay"), 6)) == 1
    assert registry.complete("pay", lambda _: FinishedJob("again", {})) == []
    last = registry.begin("pay")
    last.write(TrainingRecord(model="pay", sql="SELECT 7"))
    assert registry.register(last, FinishedJob("pay-7", {})).version == 7
    assert registry.drop(ModelName(Name("pay"))) == 6
    assert objects(storage) == []


def test_statements_leave_everything_that_pods_need_in_the_storage(
    session: Session, storage: str, tmp_path: Path
) -> None:
    (trained,) = run(session, TRAINED)
    assert trained.model == "pay@1"
    (version,) = session.registry.versions("pay")
    folder = f"pay/trainings/{version.training}"
    names = ("features.json", "model/model.keras", "sql_model.py", "training.json", "training/part.parquet")
    assert objects(storage) == [*(f"{folder}/{name}" for name in names), f"{folder}/validation/part.parquet", *VERSIONS]
    command, flags = jobs_of(session).started[-1]
    assert (command, flags["platform"], flags["storage"], flags["namespace"]) == (
        "train",
        "kubernetes",
        storage,
        "team",
    )
    assert flags["training_data"] == f"{storage}/models/{folder}/training"
    assert flags["job_name"] == f"pay-{version.training[-6:]}"
    assert not session.registry.training(version).folder.exists()
    # Another client, on another machine.
    other = replace(session, registry=registry_of(tmp_path / "other", storage))
    (predicted,) = run(other, "SELECT id, age, department FROM employee LIMIT 5 TO PREDICT guesses.pay USING pay")
    assert predicted.rows == 5
    command, flags = jobs_of(session).started[-1]
    assert flags["prediction_data"].startswith(f"{storage}/models/.work/")
    assert flags["model"] == f"{storage}/models/{folder}/model"
    run(other, f"SELECT * FROM employee LIMIT 5 TO EVALUATE '{storage}/models/{folder}'")
    assert jobs_of(session).started[-1][1]["validation_data"].startswith(f"{storage}/models/.work/")
    assert [name for name in objects(storage) if name.startswith(".work")] == []
    run(other, "DROP MODEL pay")
    assert objects(storage) == []


VERSIONS = ["pay/versions/1.json"]


def test_a_job_of_a_statement_is_what_the_command_makes_of_its_flags(session: Session, storage: str) -> None:
    run(
        session,
        f"{TRAINED} WITH image_name = 'worker:1', num_workers = 3, worker_resource_request = 'cpu=2,memory=2Gi'",
    )
    for text in ("TO PREDICT guesses USING pay", "TO EVALUATE pay"):
        run(session, f"SELECT * FROM employee LIMIT 9 {text} WITH image_name = 'worker:1'")
    started = jobs_of(session).started
    assert [command for command, _ in started] == ["train", "predict", "evaluate"]
    # The model files of the later two were temporary, and that of the training is in the storage.
    version = session.registry.versions("pay")[0]
    model_def = session.registry.training(version).definition(session.registry.root / "fetched") / "sql_model.py"
    for command, flags in started:
        arguments = as_flags({**flags, "model_def": model_def}, flags_of_command(command), command)
        found = manifests(command, *arguments)
        (job,) = (each for each in found if each["kind"] == "Job")
        submission = next(
            text for each in found for text in texts(each) if '"training_data"' in text or storage in text
        )
        assert storage in submission
        assert job["metadata"]["name"].startswith(flags["job_name"])


def manifests(*arguments: str) -> list[dict[str, Any]]:
    """What ``elasticdl`` would create."""
    command = [sys.executable, "-m", "elasticdl.cli", *arguments, "--yaml=-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def texts(manifest: dict[str, Any]) -> list[str]:
    return [str(each) for each in manifest.get("data", {}).values()]


def test_a_training_whose_client_is_gone_is_registered_when_its_job_has_succeeded(
    session: Session, storage: str
) -> None:
    jobs = jobs_of(session)
    jobs.end = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        run(session, TRAINED)
    (kept,) = {name.split("/")[2] for name in objects(storage)}
    output = f"{storage}/models/pay/trainings/{kept}/model"
    jobs.known[output] = JobOfTraining(job="pay-1", state="running")
    assert rows(run(session, "SHOW MODELS")[0])[0][:2] == ("pay", "running")
    jobs.known[output] = JobOfTraining(job="pay-1", state="succeeded", metrics={"r2": 0.5})
    assert rows(run(session, "SHOW MODELS")[0])[0][:2] == ("pay@1", "registered")
    jobs.end = JobRefusedError("no such image")
    with pytest.raises(ElasticDLError, match="no such image"):
        run(session, TRAINED)
    assert len({name.split("/")[2] for name in objects(storage) if "/trainings/" in name}) == 1
    assert shown(session)
