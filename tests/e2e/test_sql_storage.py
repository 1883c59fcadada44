"""Statements whose models and rows are in object storage: every command finds them there."""

from __future__ import annotations

import pytest
from tests.contract.servers.s3 import S3Server
from tests.e2e.elastic import Elastic

STATEMENTS_S_MAX = 1200.0
TRAIN = "SELECT * FROM iris.train TO TRAIN DNNClassifier WITH num_epochs = 3 LABEL class INTO iris_net"
PREDICT = "SELECT * FROM iris.test TO PREDICT guesses.guess USING iris_net"
EXPLAIN = "SELECT * FROM iris.test TO EXPLAIN iris_net"


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_models_in_object_storage_predict_from_another_machine(elastic: Elastic, s3_server: S3Server) -> None:
    s3_server.make_bucket("sql")
    elastic.environment |= s3_server.environment()
    elastic.environment |= {name: str(elastic.folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
    storage = "--storage=s3://sql/team"
    trained = elastic.run("sql", storage, "-e", TRAIN, timeout_s=STATEMENTS_S_MAX)
    assert trained.exit_code == 0, trained.output
    assert "Registered iris_net@1." in trained.output
    other = Elastic(folder=elastic.folder / "other", environment=elastic.environment)
    other.folder.mkdir()
    used = other.run("sql", storage, "-e", f"{PREDICT}; {EXPLAIN}; SHOW MODELS", timeout_s=STATEMENTS_S_MAX)
    assert used.exit_code == 0, used.output
    assert "Wrote 30 rows to the table guesses" in used.output
    assert "petal_length" in used.output
    assert "iris_net@1\tregistered" in used.output
