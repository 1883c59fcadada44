"""Every end-to-end test has a user with an empty home, and leaves nothing running."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contract.servers.fixtures import s3_server
from tests.e2e.elastic import Elastic, left_behind

# Under nohup all processes that the tests start would ignore SIGHUP.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

__all__ = ["s3_server"]


@pytest.fixture
def elastic(tmp_path: Path) -> Iterator[Elastic]:
    yield Elastic(folder=tmp_path)
    assert left_behind(tmp_path) == []


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The handwritten digits: ``train`` and ``test`` folders of TFRecords."""
    folder = tmp_path_factory.mktemp("digits")
    outcome = Elastic(folder=folder).run("zoo", "data", "mnist", str(folder / "mnist"))
    assert outcome.exit_code == 0, outcome.output
    return folder / "mnist"
