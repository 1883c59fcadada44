"""Data set, snapshots and export in a bucket of a real S3 server."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.contract.servers.s3 import S3Server
from tests.e2e.elastic import Elastic
from tests.e2e.models import LINEAR, write_data, write_model

from elasticdl.shared.storage import join
from elasticdl.shared.storage.s3_store import S3Store

BUCKET = "elasticdl-e2e"
CHECKPOINTS = f"""

def callbacks():
    return [keras.callbacks.ModelCheckpoint("s3://{BUCKET}/models/{{epoch}}.keras", verbose=1)]
"""


@pytest.fixture(scope="module")
def bucket(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> S3Server:
    """A server with a bucket that holds ``data/train.csv``, put there by the command line."""
    s3_server.make_bucket(BUCKET)
    folder = tmp_path_factory.mktemp("upload")
    write_data(folder)
    user = Elastic(folder=folder, environment=s3_server.environment())
    outcome = user.run("data", "put", "data", f"s3://{BUCKET}/data")
    assert outcome.exit_code == 0, outcome.output
    return s3_server


@pytest.fixture
def elastic(elastic: Elastic, bucket: S3Server) -> Elastic:
    """A user who may use the bucket and has a model file."""
    elastic.environment.update(bucket.environment())
    write_model(elastic.folder)
    return elastic


def names(bucket: S3Server, place: str) -> set[str]:
    """Names of the objects below a place of the bucket, relative to it."""
    prefix = f"s3://{BUCKET}/{place}"
    return {info.uri.removeprefix(prefix + "/") for info in S3Store(bucket.settings()).list(prefix)}


def test_data_set_snapshots_and_export_in_a_bucket(elastic: Elastic, bucket: S3Server, tmp_path: Path) -> None:
    write_model(elastic.folder, LINEAR + CHECKPOINTS)
    outcome = elastic.train(
        "--model_def=model.py",
        f"--training_data=s3://{BUCKET}/data",
        f"--validation_data=s3://{BUCKET}/data/train.csv",
        f"--storage=s3://{BUCKET}/jobs",
        f"--output=s3://{BUCKET}/output",
        f"--tensorboard_log_dir=s3://{BUCKET}/curves",
        f"--data_cache_dir={tmp_path}/cache",
        "--num_workers=1",
    )
    assert outcome.report["audit"]["records"] == 2000
    size = sum(info.size_bytes for info in S3Store(bucket.settings()).list(f"s3://{BUCKET}/data"))
    used = outcome.report["data"]
    assert 0 < used["requests"] < 10
    assert used["fetched_bytes"] + used["cached_bytes"] >= size, "the model check may have read the first batch before"
    assert used["fetched_bytes"] <= size, "no byte is requested twice"
    assert outcome.report["metrics"]["mse"] < 1.0
    assert {"model.keras", "saved_model/saved_model.pb"} <= names(bucket, "output")
    assert names(bucket, "models") == {"1.keras"}
    assert not (elastic.folder / "s3:").exists()
    assert {name.partition("/")[0] for name in names(bucket, f"curves/{outcome.job}")} == {"train", "validation"}
    kept = names(bucket, f"jobs/{outcome.job}")
    assert any(name.startswith("index/") for name in kept)
    assert any("manifest" in name for name in kept)
    assert not list((elastic.jobs / outcome.job / "storage").rglob("*.*"))

    import keras

    model = tmp_path / "model.keras"
    model.write_bytes(S3Store(bucket.settings()).read(join(f"s3://{BUCKET}", "output", "model.keras")))
    assert keras.saving.load_model(model).count_params() == 4
    for place in ("output/model.keras", "output/saved_model"):
        flags = (
            "--model_def=model.py",
            f"--training_data=s3://{BUCKET}/data",
            f"--initial_model=s3://{BUCKET}/{place}",
        )
        started = elastic.run("train", "--dry_run", *flags)
        assert f"Loaded 2 of 2 variables from s3://{BUCKET}/{place}." in started.output, started.output


@pytest.mark.parametrize(
    ("flags", "secret", "exit_code", "says"),
    [
        (["--training_data=s3://elasticdl-e2e/data"], "wrong-password", 1, ["AWS_SECRET_ACCESS_KEY"]),
        (["--training_data=s3://no-such-bucket/data"], "", 1, ["no-such-bucket"]),
        (["--training_data=s3://elasticdl-e2e/nothing"], "", 2, ["s3://elasticdl-e2e/nothing"]),
        (
            ["--training_data=s3://elasticdl-e2e/data", "--storage=s3://no-such-bucket/jobs"],
            "",
            1,
            ["--storage", "no-such-bucket"],
        ),
        (
            ["--training_data=s3://elasticdl-e2e/data", "--output=s3://no-such-bucket/output"],
            "",
            1,
            ["--output", "no-such-bucket"],
        ),
    ],
)
def test_a_bucket_that_can_not_be_used_is_one_clear_message_before_anything_starts(
    elastic: Elastic, flags: list[str], secret: str, exit_code: int, says: list[str]
) -> None:
    if secret:
        elastic.environment["AWS_SECRET_ACCESS_KEY"] = secret
    outcome = elastic.run("train", "--model_def=model.py", "--num_workers=1", "--dry_run", *flags)
    assert outcome.exit_code == exit_code, outcome.output
    for words in says:
        assert words in outcome.output, outcome.output
    assert "Traceback" not in outcome.output
    assert len(outcome.output.strip().partition("Error:")[2].splitlines()) <= 2, outcome.output


def test_put_to_a_bucket_that_does_not_exist(elastic: Elastic) -> None:
    outcome = elastic.run("data", "put", "model.py", "s3://no-such-bucket/data")
    assert outcome.exit_code == 1, outcome.output
    assert "no-such-bucket" in outcome.output
    assert "Traceback" not in outcome.output
