"""The guard of ``conftest.py`` works."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def test_a_unit_test_can_not_start_a_process() -> None:
    with pytest.raises(AssertionError, match="test_a_unit_test_can_not_start_a_process starts a process"):
        subprocess.run([sys.executable, "-c", ""], check=True)
    with pytest.raises(AssertionError, match=r"os\.fork"):
        os.fork()
