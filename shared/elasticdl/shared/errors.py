"""The one error tree: the class says whose fault it is and what the shell does with it.

==================  ============================  =============================================
class               whose fault                   what a shell does
==================  ============================  =============================================
TransientError      nobody's, for now             retries with backoff
PermanentError      the environment               stops the job, keeps it resumable
ProtocolError       the peer                      closes that connection, logs the reason
InvariantError      ours: a bug                   dies at once, state on disk is still good
UserError           the user's input or code      one clear message, exit code 2 or 1
==================  ============================  =============================================
"""

from __future__ import annotations


class ElasticDLError(Exception):
    """Root of every error that this package raises on purpose."""


class TransientError(ElasticDLError):
    """Something is away and may come back: a broker, a store, a peer.

    Attributes:
        retry_after_s: seconds after which trying again makes sense.
    """

    def __init__(self, message: str, *, retry_after_s: float = 0.5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class PermanentError(ElasticDLError):
    """The environment refuses: no such bucket, disk full, rights missing. Trying again changes nothing."""


class FencedError(PermanentError):
    """A newer incarnation of this service has taken over; this process must exit without writing anything more."""


class ProtocolError(ElasticDLError):
    """A peer sent something that the protocol does not allow."""


class InvariantError(ElasticDLError):
    """A rule that must always hold does not: a bug of ours. The process dies rather than go on with wrong state."""


class UserError(ElasticDLError):
    """The user's input, data or model code is wrong.

    Args:
        message: what is wrong, naming the thing and the place.
        hint: what to do about it, one sentence; empty when the message says so already.
        usage: True when the command line itself is wrong (exit code 2 instead of 1).
    """

    def __init__(self, message: str, *, hint: str = "", usage: bool = False) -> None:
        super().__init__(message)
        self.hint = hint
        self.usage = usage

    def __str__(self) -> str:
        message = super().__str__()
        return f"{message}\n  {self.hint}" if self.hint else message
