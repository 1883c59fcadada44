"""TRAIN, PREDICT and EVALUATE over one table of each database: the predictions are those that were evaluated."""

from __future__ import annotations

import json
import math
import sqlite3
from contextlib import closing
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from tests.contract.servers.fixtures import postgres_server
from tests.contract.servers.postgres import PASSWORD, PostgresServer
from tests.e2e.elastic import Elastic

from elasticdl.sql.databases import open_database
from elasticdl.sql.shipped import shipped_tables

__all__ = ["postgres_server"]
STATEMENTS_S_MAX = 1200.0
TRAIN = "SELECT * FROM flowers TO TRAIN DNNClassifier WITH num_epochs = 2, validation.split = 0.1 LABEL class INTO m"
EVALUATE = "SELECT * FROM flowers TO EVALUATE m INTO scores"
PREDICT = "SELECT * FROM flowers TO PREDICT guesses.guess WITH predict.probabilities = true USING m"
ROWS = 120


@pytest.fixture(params=["duckdb", "sqlite", "postgres"])
def database(request: pytest.FixtureRequest, elastic: Elastic, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a database with the table ``flowers``."""
    postgres = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    monkeypatch.setenv("XDG_CACHE_HOME", str(elastic.folder / "cache"))
    address = str(elastic.folder / f"flowers.{request.param}")
    match request.param:
        case "duckdb":
            duckdb.connect(address).close()
        case "sqlite":
            with closing(sqlite3.connect(address)) as connection, connection:
                connection.execute("CREATE TABLE first (a)")
        case _:
            assert isinstance(postgres, PostgresServer)
            monkeypatch.setenv("PGPASSWORD", PASSWORD)
            elastic.environment["PGPASSWORD"] = PASSWORD
            address = postgres.url
    flowers = pq.read_table(shipped_tables()["iris.train"])
    assert flowers.num_rows == ROWS
    opened = open_database(address)
    opened.write("flowers", flowers.schema, flowers.to_batches())
    opened.close()
    return address


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_predictions_are_those_that_are_evaluated(elastic: Elastic, database: str) -> None:
    place = f"--database={database}"
    outcome = elastic.run("sql", place, "-e", f"{TRAIN}; {EVALUATE}; {PREDICT}", timeout_s=STATEMENTS_S_MAX)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.count("exact: ") == 3
    read = elastic.run("sql", "--json", place, "-e", "SELECT * FROM scores; SELECT * FROM guesses")
    (scores,), guesses = (each["rows"] for each in json.loads(read.output)["results"])
    assert len(guesses) == ROWS
    right = sum(row["guess"] == row["class"] for row in guesses)
    assert ROWS / 2 < right <= ROWS
    assert round(metric(scores, "accuracy") * ROWS, 3) == right
    loss = -sum(math.log(probabilities(row)[row["class"]]) for row in guesses) / ROWS
    assert metric(scores, "loss") == pytest.approx(loss, rel=1e-5)
    for row in guesses:
        assert probabilities(row)[row["guess"]] == max(probabilities(row))


def metric(scores: dict[str, Any], name: str) -> float:
    """A metric of an evaluation, with or without ``val_``."""
    return float(next(value for key, value in scores.items() if key.removeprefix("val_") == name))


def probabilities(row: dict[str, Any]) -> list[float]:
    """SQLite has no lists, so it holds them as JSON."""
    found = row["guess_probabilities"]
    return [float(each) for each in (json.loads(found) if isinstance(found, str) else found)]
