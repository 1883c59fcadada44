"""How the process of a service begins, and how it ends with an error."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from elasticdl.shared.errors import UserError
from elasticdl.shared.names import Incarnation, Service, new_incarnation
from elasticdl.shared.process import logs
from elasticdl.shared.process.exit_codes import EXIT_FAULT, EXIT_REFUSED, exit_code, reason_of
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.operating_system import set_title
from elasticdl.shared.process.settings import S, from_environment

_log = get_logger()


def run_service(service: Service, kind: type[S], serve: Callable[[S, Incarnation], int]) -> int:
    """Run a service with the settings of the environment, until it ends.

    Args:
        serve: runs an incarnation of it, and returns the exit code.

    Returns:
        The exit code. After an error it says whether starting again makes sense, and the log has the reason.
    """
    try:
        settings = from_environment(kind, os.environ)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_REFUSED
    set_title(settings.pod, settings.job)
    incarnation = new_incarnation()
    logs.configure(
        service=service, job=settings.job, pod=settings.pod, incarnation=incarnation, level=settings.log_level
    )
    try:
        return serve(settings, incarnation)
    except Exception as error:  # The process' outermost frame: Python's own exit code would look like a refusal.
        return log_failure(service, error)


def log_failure(service: Service, error: Exception) -> int:
    """Log the error that ends a service, with its traceback if it is unexpected; returns the exit code."""
    code = exit_code(error)
    _log.error(f"the {service.value} can't continue", reason=reason_of(error))
    if code == EXIT_FAULT:
        traceback.print_exception(error)
    return code
