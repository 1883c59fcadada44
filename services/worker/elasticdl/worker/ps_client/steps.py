"""The steps of a request to a ps: what the procedures of this package yield, and a driver executes.

The process executes them with blocking sockets (``client.py``). The simulator executes them on a virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.wire.messages import Reply, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class PsAddress:
    """Where a ps listens.

    Attributes:
        incarnation: the process that registered the address. The client refuses any other process there.
    """

    address: str
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class PsDirectory:
    """What the job's registers say about the ps. Both functions return at once.

    Attributes:
        placement: returns the latest known version of the placement.
        resolve: returns the address of every ps that has registered.
    """

    placement: Callable[[], Placement]
    resolve: Callable[[], Mapping[PodName, PsAddress]]


class Wire(Protocol):
    """An open connection to one ps. The ps answers requests in the order in which they were sent."""

    @property
    def identity(self) -> str:
        """Incarnation of the process that answered the handshake."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the connection is broken."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one ps.

    Attributes:
        reply: the message; its arrays lie in a receive buffer.
        release: returns the receive buffer to the pool.
    """

    reply: Reply
    incarnation: Incarnation
    release: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection; the result is a ``Wire``. Raises ConnectionLostError or ProtocolError."""

    ps: PodName
    address: PsAddress


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection."""

    wire: Wire


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request; the result is a handle for ``Receive``. A broken connection shows in ``Receive``.

    Attributes:
        request: the message; unchanged until ``Receive``.
        is_followed: another request follows at once, and may be sent together with this one.
    """

    wire: Wire
    request: Request
    is_followed: bool = False


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the answer to a request; the result is an ``Answer``. Raises ConnectionLostError or ProtocolError."""

    handle: Any


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, at most until a version of the placement later than ``version`` is known.

    Raises TransientError when the client is closed meanwhile.
    """

    seconds: float
    version: int


Step = Connect | Close | Send | Receive | Pause
