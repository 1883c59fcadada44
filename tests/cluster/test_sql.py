"""Statements whose jobs run in pods: the model is registered in object storage, and the predictions come back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.cluster.deployment import BUCKET, Deployment
from tests.cluster.scenarios.command_line import CommandLine

STORAGE = f"s3://{BUCKET}/statements"
PODS = ", ".join(
    (
        "num_workers = 1",
        "worker_resource_request = 'cpu=80m,memory=900Mi'",
        "worker_resource_limit = 'cpu=2,memory=1500Mi'",
        "ps_resource_request = 'cpu=40m,memory=300Mi'",
        "ps_resource_limit = 'cpu=2,memory=1Gi'",
        "master_resource_request = 'cpu=10m,memory=200Mi'",
        "master_resource_limit = 'cpu=2,memory=1500Mi'",
    )
)
TRAIN = f"SELECT * FROM iris.train TO TRAIN DNNClassifier WITH num_epochs = 3, {PODS} LABEL class INTO iris_net"
PREDICT = f"SELECT * FROM iris.test TO PREDICT guesses.guess WITH {PODS} USING iris_net"
EVALUATE = f"SELECT * FROM iris.test TO EVALUATE iris_net WITH {PODS} INTO scores"
READ = "SELECT count(*) FILTER (guess = class) AS correct, count(*) AS n FROM guesses; SELECT * FROM scores"


pytestmark = pytest.mark.timeout(900)


@pytest.mark.bench_cluster
@pytest.mark.usefixtures("service_images", "cluster")
def test_a_statement_trains_predicts_and_evaluates_in_the_cluster(
    user: CommandLine, elasticdl_namespace: Deployment
) -> None:
    folders = {name: str(user.folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
    user = replace(user, environment={**elasticdl_namespace.environment, **folders})
    place = ("sql", f"--storage={STORAGE}", "--platform=kubernetes", f"--namespace={user.namespace}")
    trained = user.run(*place, "-e", TRAIN)
    assert "Registered iris_net@1." in trained
    user.run(*place, "-e", PREDICT)
    user.run(*place, "-e", EVALUATE)
    guesses, scores = (each["rows"][0] for each in json.loads(user.run("sql", "--json", "-e", READ))["results"])
    assert guesses["n"] == 30
    assert round(accuracy(scores) * 30, 3) == guesses["correct"]
    assert "iris_net@1\tregistered" in user.run(*place, "-e", "SHOW MODELS")


def accuracy(scores: Mapping[str, float]) -> float:
    return next(value for name, value in scores.items() if name.removeprefix("val_") == "accuracy")
