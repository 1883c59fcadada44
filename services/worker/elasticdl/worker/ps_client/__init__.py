"""The worker's side of the ps: one object that makes several ps look like one.

May import ``elasticdl.shared`` and numpy. Must not import TensorFlow, asyncio or the ps itself.

**Threads.** Any thread may call any method. ``send_pull`` and ``send_push`` return when the request is with the kernel;
requests are answered by each ps in the order in which they were sent, so the order of the *sending calls* alone decides
what a pull sees, however late its reply is received. A caller that wants a deterministic run sends pull k+1 right after
push k-1 and receives whenever it likes, from any thread.

**Arrays.** What a push or pull was given must not change until its receive returns: a ps that comes back from the dead
gets the same request again. What a pull returned is a view of buffers that are used again after ``Pulled.release``.
"""

from elasticdl.worker.ps_client.ps_connection import PsAddress, PsSetSettings
from elasticdl.worker.ps_client.ps_set import PsSet, PullTicket, PushTicket
from elasticdl.worker.ps_client.requests import Pulled, PushOutcome, PushRequest, Standing
from elasticdl.worker.ps_client.rules import PinLostError

__all__ = [
    "PinLostError",
    "PsAddress",
    "PsSet",
    "PsSetSettings",
    "PullTicket",
    "Pulled",
    "PushOutcome",
    "PushRequest",
    "PushTicket",
    "Standing",
]
