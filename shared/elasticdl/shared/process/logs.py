"""Logs are structlog events: readable on a terminal, JSON lines elsewhere."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog

from elasticdl.shared.names import Incarnation, JobId, PodName, Service

_NAMES: dict[str, str] = {}
"""Fields of every log event of this process. Context variables would not reach threads that libraries start."""


def configure(
    *,
    service: Service,
    job: JobId,
    pod: PodName,
    incarnation: Incarnation,
    level: str = "INFO",
    stream: TextIO | None = None,
) -> None:
    """Set up the log of this process; every event gets these names.

    Args:
        level: ``DEBUG``, ``INFO``, ``WARNING`` or ``ERROR``.
        stream: where to write; standard error by default.
    """
    target = stream or sys.stderr
    renderers: list[structlog.typing.Processor]
    if target.isatty():
        renderers = [structlog.processors.TimeStamper(fmt="%H:%M:%S"), structlog.dev.ConsoleRenderer()]
        names: dict[str, str] = {"pod": pod}  # a person at a terminal knows the job
    else:
        renderers = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(sort_keys=False),
        ]
        names = {"service": service.value, "job": job, "pod": pod, "incarnation": incarnation}
    _NAMES.clear()
    _NAMES.update(names)
    structlog.configure(
        processors=[
            _add_names,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )


def hide_details(*, debug: bool = False) -> None:
    """Set up the log of a process whose output is for people: messages of services are details."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if debug else logging.CRITICAL),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _add_names(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {**_NAMES, **event}
