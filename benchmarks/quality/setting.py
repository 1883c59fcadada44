"""The machine that results come from."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """Processor, number of cores and memory."""
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in facts.read_text().splitlines() if line.startswith("model name")]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({names[0] if names else model}), {memory_bytes / 2**30:.0f} GiB of memory"
