"""What only Postgres has: passwords, numbers of any length, and a log of all that it was asked."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.contract.servers.postgres import PASSWORD, PostgresServer

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


def test_numbers_of_any_length_are_exact_if_they_can_be(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    query = "SELECT v::numeric AS v FROM (VALUES ('12345678901234567890.25'), ('-0.5'), (NULL)) AS t(v)"
    assert database.schema(query).field("v").type == pa.decimal128(22, 2)
    (batch,) = database.batches(query)
    assert [each and str(each) for each in batch.column(0).to_pylist()] == ["12345678901234567890.25", "-0.50", None]
    assert database.schema("SELECT 'NaN'::numeric AS v").field("v").type == pa.float64()
    database.close()


def test_functions_that_change_something_are_refused_by_the_server(postgres_server: PostgresServer) -> None:
    database = open_database(postgres_server.url_with_password)
    database.write("counted", pa.schema([("a", pa.int64())]), [])
    for query in ("SELECT setval('s', 1) AS a", "SELECT lo_create(0) AS a", "SELECT nextval('s') AS a"):
        with pytest.raises(UserError):
            list(database.batches(query))
    assert database.schema("SELECT current_setting('transaction_read_only') AS mode").names == ["mode"]
    (batch,) = database.batches("SELECT current_setting('transaction_read_only') AS mode")
    assert batch.column(0).to_pylist() == ["on"]
    database.close()
    text = postgres_server.log.read_text(errors="replace")
    assert PASSWORD not in text
