"""Exit codes of the command line."""

from __future__ import annotations

SUCCESS = 0
FAILURE = 1
USAGE = 2
"""Wrong usage of the command line."""
INTERRUPTED = 130
"""As shells report SIGINT. The job can be resumed."""
