"""Logs are structlog events: readable on a terminal, JSON lines elsewhere.

This is the only module that imports structlog, and it does so with the first message: the import takes a good part of
the time of a command that looks at a job, which logs nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from elasticdl.shared.names import Incarnation, JobId, PodName, Service

if TYPE_CHECKING:
    import structlog

    Logger = structlog.typing.FilteringBoundLogger

_NAMES: dict[str, str] = {}
"""Fields of every log event of this process. Context variables would not reach threads that libraries start."""
_BEFORE_FIRST_MESSAGE: list[Callable[[], None]] = []
"""What remains to be set up."""
_SETTING_UP = threading.Lock()


class _Logger:
    """A logger as structlog makes it for each message."""

    def __getattr__(self, name: str) -> Any:
        import structlog

        if _BEFORE_FIRST_MESSAGE:
            with _SETTING_UP:
                for each in _BEFORE_FIRST_MESSAGE:
                    each()
                _BEFORE_FIRST_MESSAGE.clear()
        return getattr(structlog.get_logger(), name)


def get_logger() -> Logger:
    """A logger with the settings of this process, whenever they are made."""
    return cast("Logger", _Logger())


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
    import structlog

    _BEFORE_FIRST_MESSAGE.clear()
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
    level = logging.DEBUG if debug else logging.CRITICAL
    if "structlog" in sys.modules:
        _hide_below(level)
    else:
        _BEFORE_FIRST_MESSAGE[:] = [partial(_hide_below, level)]


def _hide_below(level: int) -> None:
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _add_names(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    return {**_NAMES, **event}
