"""The worker's client of the parameter servers: many ps look like one.

``calls.py`` and ``connection.py`` hold all rules: splitting, sending in the same order everywhere, waiting, retrying,
following moved groups. They are procedures that do no I/O. ``client.py`` executes them over blocking sockets; the
simulator executes the same procedures on a virtual clock.

May import ``elasticdl.shared`` and numpy. Must not import TensorFlow, asyncio or the ps.

**Threads.** Any thread may call ``PsClient``. Each ps answers the requests of a connection in the order in which they
were sent, so the pull of ``push_and_pull`` sees the push, although both are sent before the first answer arrives.

**Arrays.** What a push or pull was given must not change until its receive returns: a restarted ps gets the same
request again. What a pull returned is a view of buffers that are reused after ``Pulled.release``.
"""

from elasticdl.worker.ps_client.calls import PsCalls, Settled
from elasticdl.worker.ps_client.client import PsClient
from elasticdl.worker.ps_client.connection import PsAddress, PsClientSettings, PsDirectory
from elasticdl.worker.ps_client.exchange import RoundSum
from elasticdl.worker.ps_client.requests import (
    EpochMetrics,
    PinLostError,
    PullDelayedError,
    Pulled,
    PushOutcome,
    PushRequest,
    TaskProgress,
)

__all__ = [
    "EpochMetrics",
    "PinLostError",
    "PsAddress",
    "PsCalls",
    "PsClient",
    "PsClientSettings",
    "PsDirectory",
    "PullDelayedError",
    "Pulled",
    "PushOutcome",
    "PushRequest",
    "RoundSum",
    "Settled",
    "TaskProgress",
]
