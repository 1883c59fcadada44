"""What simulations run in: no log lines, no warnings about coroutines of killed processes, no garbage collection.

Garbage is collected afterwards, so the coroutines of killed processes are not closed while a simulation runs.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def quiet() -> Iterator[None]:
    """No log lines, no warnings about coroutines that a killed process had not begun, no garbage collection within."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    gc.freeze()  # Modules and everything else that was there before: not searched for garbage.
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        gc.enable()
        gc.unfreeze()
        structlog.configure(**before)
