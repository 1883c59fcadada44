"""A ps' controller in a shell of its own: broker, store, and a ps that serves."""

from __future__ import annotations

import pytest
from tests.unit.ps.controller_shell import Broker, Shell, serving

from elasticdl.shared.storage import MemoryStore


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def shell(broker: Broker, store: MemoryStore) -> Shell:
    """A ps that serves, with snapshot 0 registered."""
    return serving(broker, store)
