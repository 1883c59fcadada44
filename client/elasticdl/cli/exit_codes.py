"""What the command line says with its exit code."""

from __future__ import annotations

DONE = 0
FAILED = 1
USAGE = 2
"""The command line itself is wrong."""
INTERRUPTED = 130
"""As a shell says of SIGINT; the job can be resumed."""
