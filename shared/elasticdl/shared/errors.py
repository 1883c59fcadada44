"""All errors that this package raises: the class tells the cause and what a service does about it.

==================  ============================  =============================================
class               cause                         what a service does
==================  ============================  =============================================
TransientError      a temporary outage            retries with backoff
PermanentError      the environment               stops the job, which stays resumable
ProtocolError       the peer                      closes that connection, logs the reason
InvariantError      a bug in ElasticDL            exits at once, state on disk is still good
UserError           the user's input or code      one clear message, exit code 2 or 1
==================  ============================  =============================================
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ElasticDLError(Exception):
    """Base class of every error that this package raises on purpose."""


class TransientError(ElasticDLError):
    """A service that is needed is unreachable for now: NATS, a store, a peer.

    Attributes:
        retry_after_s: seconds after which a retry makes sense.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(ElasticDLError):
    """The environment refuses: no such bucket, disk full, permission denied. A retry does not help."""


class NoSpaceError(PermanentError):
    """A disk or a bucket is full. The job is stopped in good order, and can be resumed once there is space."""


class FencedError(PermanentError):
    """A newer instance of this service has taken over; this process must exit without writing anything more."""


class ProtocolError(ElasticDLError):
    """A peer sent something that the protocol does not allow."""


REBUILD = "--rebuild_bus"
"""The flag of ``elasticdl resume`` that replaces the streams of a job by what its snapshots say."""


class UnreadableError(ProtocolError):
    """Something on the bus can't be read, and the job can't continue without it."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} can't be read: {reason}. Resume the job with {REBUILD}")


class InvariantError(ElasticDLError):
    """An invariant does not hold: a bug in ElasticDL. The process exits instead of continuing with wrong state."""


class UserError(ElasticDLError):
    """The user's input, data or model code is wrong.

    Args:
        hint: what to do about it, one sentence; empty when the message already says it.
        usage: True when the command line itself is wrong (exit code 2 instead of 1).
    """

    def __init__(self, message: str, *, hint: str = "", usage: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.usage = usage

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  {self.hint}" if self.hint else message


class FormatError(UserError):
    """A file or a log is in a format that this version does not know."""


def check_format(what: str, found: object, known: int) -> None:
    """Check the format of something that may have been written by a newer version.

    Args:
        what: it, such as ``the manifest URI``.

    Raises:
        FormatError: this version does not know the format.
    """
    if found != known:
        raise FormatError(
            f"{what} has format {found}, and this version of ElasticDL reads format {known}",
            hint="Use the version of ElasticDL that wrote it, or a newer one.",
        )


def check_range(flag: str, value: float, low: float, high: float) -> None:
    """Check that the value of a flag lies in ``[low, high]``."""
    if not low <= value <= high:
        raise UserError(f"{flag}={value} is out of range", hint=f"It must be {low} to {high}.", usage=True)


@contextmanager
def file_errors(problem: str, error: type[ElasticDLError] = UserError, **facts: Any) -> Iterator[None]:
    """Raise an error with its own message for each ``OSError`` of the block: ``FILE can't be read: Is a folder``."""
    try:
        yield
    except OSError as reason:
        raise error(f"{problem}: {reason.strerror or reason}", **facts) from reason
