"""What only Postgres has: passwords, numbers of any length, and a log of all that it was asked."""

from __future__ import annotations

import re
from contextlib import suppress

import pyarrow as pa
import pytest
from tests.contract.servers.postgres import PASSWORD, PostgresServer
from tests.contract.sql.injections import INJECTIONS

from elasticdl.shared.errors import UserError
from elasticdl.sql.databases import open_database


def test_a_password_is_in_no_message_and_no_address(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    assert PASSWORD not in database.url
    assert database.url == f"postgresql://127.0.0.1:{postgres_server.port}/postgres"
    database.close()
    with pytest.raises(UserError) as wrong:
        open_database(postgres_server.url_with_password.replace("/postgres", "/no_such_database"))
    assert PASSWORD not in str(wrong.value)
    assert "no_such_database" in str(wrong.value)


def test_a_password_that_is_missing_is_asked_for(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGPASSWORD", "PGPASSFILE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="no password supplied"):
        open_database(postgres_server.url)
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return PASSWORD

    database = open_database(postgres_server.url, ask)
    assert asked == [f"Password for {database.url}: "]
    database.write("asked", pa.schema([("id", pa.int64())]), pa.table({"id": [1]}).to_batches())
    assert "asked" in database.tables()
    database.close()


def test_numbers_of_any_length_are_exact_if_they_can_be(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    query = "SELECT v::numeric AS v FROM (VALUES ('12345678901234567890.25'), ('-0.5'), (NULL)) AS t(v)"
    assert database.schema(query).field("v").type == pa.decimal128(22, 2)
    (batch,) = database.batches(query)
    assert [each and str(each) for each in batch.column(0).to_pylist()] == ["12345678901234567890.25", "-0.50", None]
    assert database.schema("SELECT 'NaN'::numeric AS v").field("v").type == pa.float64()
    database.close()


def test_nothing_that_a_function_of_a_query_changes_stays(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    (batch,) = database.batches("SELECT current_setting('transaction_read_only') AS mode")
    assert batch.column(0).to_pylist() == ["on"]
    with suppress(UserError):  # Servers before version 16 run it, in a transaction that is rolled back.
        list(database.batches("SELECT lo_create(0) AS a"))
    (batch,) = database.batches("SELECT count(*) AS n FROM pg_largeobject_metadata")
    assert batch.column(0).to_pylist() == [0]
    database.close()
    assert PASSWORD not in postgres_server.log.read_text(errors="replace")


def test_the_server_is_asked_for_nothing_but_selects(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    database.write("things", pa.schema([("id", pa.int64())]), pa.table({"id": [1, 2]}).to_batches())
    before = len(postgres_server.log.read_bytes())
    for statement in INJECTIONS:
        with suppress(UserError):
            list(database.batches(statement))
        with suppress(UserError):
            database.find(statement)
    assert database.find("things") is not None
    database.close()
    log = postgres_server.log.read_bytes()[before:].decode(errors="replace")
    first = r"(COPY \(SELECT|SET TRANSACTION READ ONLY|\w+)"
    run = re.findall(rf"LOG:  (?:statement|execute [^:]*):\s*{first}", log)
    assert run.count("SELECT") >= len(INJECTIONS)
    assert {each.upper() for each in run} <= {
        "SELECT",
        "COPY (SELECT",
        "BEGIN",
        "ROLLBACK",
        "SET TRANSACTION READ ONLY",
    }
