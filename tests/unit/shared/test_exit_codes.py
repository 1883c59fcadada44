"""Exit codes of services, and how the launcher classifies them."""

from __future__ import annotations

import errno

import pytest

from elasticdl.shared.bus.nats_bus.connection import NoRespondersError
from elasticdl.shared.errors import (
    ElasticDLError,
    InvariantError,
    PermanentError,
    ProtocolError,
    TransientError,
    UserError,
)
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.causes import classify_exit
from elasticdl.shared.process.exit_codes import exit_code


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (TransientError("broker away"), ExitCause.DISCONNECTED),
        (NoRespondersError("broker away"), ExitCause.DISCONNECTED),
        (UserError("no such column"), ExitCause.REFUSED),
        (PermanentError("disk full"), ExitCause.REFUSED),
        (ProtocolError("not a job"), ExitCause.REFUSED),
        (InvariantError("two groups"), ExitCause.OWN_FAULT),
        (ElasticDLError("of no kind"), ExitCause.OWN_FAULT),
        (MemoryError("4096 bytes of memory"), ExitCause.OUT_OF_MEMORY),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), ExitCause.OUT_OF_MEMORY),
        (RuntimeError("can't start new thread"), ExitCause.OUT_OF_MEMORY),
        (ValueError("a bug"), ExitCause.OWN_FAULT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_the_launcher_classifies_the_exit_of_a_service(error: Exception, cause: ExitCause) -> None:
    assert classify_exit(exit_code(error)) is cause
