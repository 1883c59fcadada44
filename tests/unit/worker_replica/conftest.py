"""Fixtures: a ring of workers in this process, on a broker and a store in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.worker_replica.rings import Ring


@pytest.fixture
def ring() -> Iterator[Ring]:
    """A ring without members."""
    made = Ring()
    yield made
    made.close()
