"""Fixtures around real servers, for contract and end-to-end tests: import them in a ``conftest.py``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.contract.servers import s3


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3Server]:
    """A real S3 server for the whole session; skips where none can be had."""
    with s3.s3_server(tmp_path_factory.mktemp("s3")) as server:
        if server is None:
            pytest.skip("no S3 server on this machine: make s3-server")
        yield server
