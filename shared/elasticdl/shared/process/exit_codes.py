"""Exit codes of services. The launcher decides by them whether to restart the process."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
from typing import NoReturn

from elasticdl.shared.errors import InvariantError, PermanentError, ProtocolError, TransientError, UserError
from elasticdl.shared.words import size

EXIT_REFUSED = 1
"""An error that a restart can't fix; the process has logged it."""
EXIT_FAULT = os.EX_SOFTWARE
"""A bug, or an error that a restart from the last snapshot may fix."""
EXIT_NO_MEMORY = os.EX_OSERR
"""The system gives this process no more memory."""
EXIT_AWAY = os.EX_TEMPFAIL
"""A service that this process needs was unreachable for too long; restart it without limit."""
EXIT_SUPERSEDED = os.EX_UNAVAILABLE
"""A later master has taken over; on Kubernetes this one must not be started again in its container."""
EXIT_HUNG = 79
"""A worker has ended itself because a batch exceeded its deadline; no code of ``sysexits.h``, which others use."""


def exit_code(error: Exception) -> int:
    """The exit code of a process that ends with this error; unexpected errors count as bugs."""
    if lacks_memory(error):
        return EXIT_NO_MEMORY
    match error:
        case TransientError():
            return EXIT_AWAY
        case InvariantError():
            return EXIT_FAULT
        case UserError() | PermanentError() | ProtocolError():
            return EXIT_REFUSED
        case _:
            return EXIT_FAULT


def lacks_memory(error: BaseException) -> bool:
    """Whether an error says that the system gives this process no more memory, be it for a thread."""
    is_system_error = isinstance(error, OSError) and error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or is_system_error or "can't start new thread" in str(error)


def reason_of(error: BaseException) -> str:
    """Why a process ends, for its log."""
    if not lacks_memory(error):
        return str(error)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    allowed = f", which may have {size(limit)} (ulimit -v)" if limit != resource.RLIM_INFINITY else ""
    return f"The system gives this process{allowed} no more memory: {str(error) or type(error).__name__}"


def leave(code: int) -> NoReturn:
    """Exit at once: after an error no thread may write anything more, and no blocked read may delay the exit."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # Its reader has gone away.
            stream.flush()
    os._exit(code)
