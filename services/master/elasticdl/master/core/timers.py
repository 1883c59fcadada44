"""The names of the core's timers: one that runs is in ``State.timers`` and ends in a TimerFired on the log.

They are recorded, so a name that has been used keeps its meaning.
"""

from __future__ import annotations

from elasticdl.shared.names import PodName

EVALUATION = "evaluation"
"""When it fires, an evaluation by the clock is due."""
SPECULATION = "speculation"
"""When it fires, the oldest task in hand counts as slow."""
STOP = "stop"
"""When it fires, a job that stops ends without what has not been put in order."""
FREEZE = "move"
"""When it fires, a move whose donor is still frozen is given up."""
MOVE_PAUSE = "move again"
"""Until it fires, no move is begun."""
PIN_PAUSE = "order pins again"
"""Until it fires, no evaluation is started."""
SNAPSHOT_PAUSE = "order snapshots again"
"""Until it fires, no snapshot is ordered."""
READ_PAUSE = "read ledgers again"
"""Until it fires, no ledger is read."""

_START = "start "
_RESTART = "restart "


def start_of(pod: PodName) -> str:
    """When it fires, a process that has not said that it is ready counts as silent."""
    return _START + pod


def restart_of(pod: PodName) -> str:
    """Until it fires, a process that has exited is not started again."""
    return _RESTART + pod


def pod_of_start(timer: str) -> PodName | None:
    """The pod whose ``start_of`` a timer is; None: it is another timer."""
    return PodName(timer.removeprefix(_START)) if timer.startswith(_START) else None
