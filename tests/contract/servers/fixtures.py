"""Fixtures around real servers, for contract and end-to-end tests: import them in a ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.servers import postgres, s3


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """A real S3 server for the whole session; skips where none can be had."""
    with s3.s3_server(tmp_path_factory.mktemp("s3")) as server:
        if server is None:
            pytest.skip("no S3 server on this machine: make s3-server")
        yield server


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[postgres.PostgresServer]:
    """A real Postgres server for the whole session; skips where none is installed."""
    with postgres.postgres_server(tmp_path_factory.mktemp("postgres")) as server:
        if server is None:
            pytest.skip("no Postgres on this machine: make postgres-server")
        yield server
