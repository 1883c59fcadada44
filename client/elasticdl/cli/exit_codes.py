"""Exit codes of the command line."""

from __future__ import annotations

from elasticdl.shared.errors import ElasticDLError, UserError

SUCCESS = 0
FAILURE = 1
USAGE = 2
"""Wrong usage of the command line."""
INTERRUPTED = 130
"""As shells report SIGINT. The job can be resumed."""


def of_error(error: ElasticDLError) -> int:
    """That of a command that ends with an error."""
    return USAGE if isinstance(error, UserError) and error.usage else FAILURE
