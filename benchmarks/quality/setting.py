"""Where and when results were measured."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and when the runs took place.

    Attributes:
        machine: processor, cores and memory.
        date: day of the page, as YYYY-MM-DD.
        wall_s: seconds that all runs took.
    """

    machine: str
    date: str
    wall_s: float


def describe_machine() -> str:
    """Processor, number of cores and memory."""
    model = platform.processor() or platform.machine()
    facts = Path("/proc/cpuinfo")
    names = [line.partition(": ")[2] for line in facts.read_text().splitlines() if line.startswith("model name")]
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores ({names[0] if names else model}), {memory_bytes / 2**30:.0f} GiB of memory"
