"""What a service's process says with its exit code about what ended it; the launcher judges by it what to do."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from elasticdl.shared.errors import InvariantError, PermanentError, ProtocolError, TransientError, UserError

EXIT_REFUSED = 1
"""It said a clear last word; starting again changes nothing."""
EXIT_FAULT = os.EX_SOFTWARE
"""A bug, or something that a fresh start from the last snapshot may put right."""
EXIT_AWAY = os.EX_TEMPFAIL
"""Somebody else stayed away for too long; starting again is all there is to do, as often as it takes."""


def exit_code(error: Exception) -> int:
    """The exit code of a process that ends with this error; what nobody raises on purpose is a bug."""
    match error:
        case TransientError():
            return EXIT_AWAY
        case InvariantError():
            return EXIT_FAULT
        case UserError() | PermanentError() | ProtocolError():
            return EXIT_REFUSED
        case _:
            return EXIT_FAULT


def leave(code: int) -> NoReturn:
    """End the process at once: after an error no thread may write anything more, and nobody waits for a read."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
