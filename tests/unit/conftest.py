"""Unit tests start no process: a test that tries to fails, whichever library it uses. They leave no job behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import structlog

os.environ.setdefault("TF_NUM_INTEROP_THREADS", "4")
"""Steps of a round that run side by side block a thread each; see ``model_builder``. TensorFlow reads it once."""

STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec"}
"""Audit events of the interpreter, raised before a process is started."""

HARMLESS = {"uname", "fc-list"}
"""h5py calls ``platform.uname()`` when it is imported, and the first plot of matplotlib on a machine asks for fonts."""

_running_test = ""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if _running_test and event in STARTS and not HARMLESS.intersection(arguments[:1]):
        raise AssertionError(
            f"{_running_test} starts a process ({event} {arguments[:1]}): move it to tests/integration"
        )


sys.addaudithook(_refuse)


@pytest.fixture(autouse=True)
def no_process_is_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse processes for as long as a test and its fixtures run."""
    global _running_test
    _running_test = request.node.nodeid
    yield
    _running_test = ""


@pytest.fixture(autouse=True)
def no_job_adapts_layers() -> Iterator[None]:
    """Forget the adapter of a job that a test has built: in the product, it serves its process to the end."""
    yield
    if adapting := sys.modules.get("elasticdl.layers.adapting"):
        adapting.use(None)


@pytest.fixture(autouse=True)
def logs_are_set_up_as_at_first() -> Iterator[None]:
    """Undo what a test has set up for the log of its process: a command hides the lines that another test reads."""
    yield
    structlog.reset_defaults()
