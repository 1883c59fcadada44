"""Exit codes of the command line, and how errors become exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence

from elasticdl.cli.former_flags import refuse_former_flags
from elasticdl.cli.surroundings import check_working_folder, ensure_home
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


def run_guarded(run: Callable[[], object], arguments: Sequence[str]) -> None:
    """Run a command. An error is shown, and ends the process; ``elasticdl.cli.__main__`` handles signals.

    Args:
        arguments: of the command.
    """
    try:
        check_working_folder()
        if note := ensure_home(os.environ):
            sys.stderr.write(f"{note}\n")
        refuse_former_flags(arguments)
        run()
    except KeyboardInterrupt:  # It ends a command that serves. Typer exits with the same codes, here and below.
        sys.exit(INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC) or error.filename is not None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:  # Else what reads the output, such as ``head``, has read enough.
            _print_error(f"the output can't be written: {error.strerror}")
        sys.exit(FAILURE)
    except ElasticDLError as error:
        if "--debug" in arguments:
            raise
        _print_error(str(error))
        sys.exit(of_error(error))


def _print_error(message: str) -> None:
    from elasticdl.cli.display.consoles import print_error

    print_error(message)
