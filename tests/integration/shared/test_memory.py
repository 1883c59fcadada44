"""Freed memory goes back to the operating system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elasticdl.shared.process.operating_system import return_freed_memory

PROGRAM = """
import psutil
from elasticdl.shared.process.operating_system import return_freed_memory
kept, freed = [], []
for number in range(200_000):
    freed.append(bytes(600 + number % 50))
    if number % 1000 == 0:
        kept.append(bytes(600))  # Between the others, so that the C library can't return the end of its heap.
before = psutil.Process().memory_info().rss
del freed
print(before - psutil.Process().memory_info().rss)
return_freed_memory()
print(before - psutil.Process().memory_info().rss)
"""


def test_freed_memory_is_returned() -> None:
    if not return_freed_memory():
        pytest.skip("this C library has no malloc_trim")
    output = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True).stdout
    without, returned = map(int, output.split())
    assert returned > 60e6 > without
