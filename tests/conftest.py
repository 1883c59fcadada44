"""For all tests: hypothesis asserts no times, because a busy machine is no bug, and looks harder where time allows.

Continuous integration tries the same examples each time: what a change breaks fails, and what it doesn't passes. New
examples are tried wherever people run the tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

_IN_CI = bool(os.environ.get("CI"))
settings.register_profile(
    "elasticdl", deadline=None, print_blob=True, max_examples=100 if _IN_CI else 25, derandomize=_IN_CI
)
settings.load_profile("elasticdl")

_MARKED = "pytestmark = pytest.mark.tensorflow\n"
_FOLDERS_MARKED = {"worker_model"}
"""Folders all of whose modules are marked, and whose conftest.py imports TensorFlow."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Deselecting a module would still import TensorFlow, three seconds in each process; so it is not even read."""
    if "not tensorflow" not in config.option.markexpr:
        return None
    if collection_path.is_dir():
        return collection_path.name in _FOLDERS_MARKED or None
    return (collection_path.suffix == ".py" and _MARKED in collection_path.read_text()) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of slow tiers by their folder."""
    for tier in ("cluster", "e2e"):
        if tier in item.path.parts:
            item.add_marker(tier)
