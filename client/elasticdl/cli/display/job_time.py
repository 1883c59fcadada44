"""The present time of a job that another process runs, perhaps on another machine."""

from __future__ import annotations

from elasticdl.master.core import State
from elasticdl.shared.messages.sender_times import agreed_s
from elasticdl.shared.process.clock import Clock, JobClock, SystemClock


def clock_of(state: State, own: Clock | None = None) -> JobClock:
    """A clock that shows the time of a running job.

    Args:
        state: the job. Once it is measured, its log gets a record every few seconds, so a clock that is far from the
            last record shows another time than the job's.
        own: the machine's clock; None: the system's.
    """
    own = own or SystemClock()
    clock = JobClock(own)
    if state.measured:
        now_s = own.now()
        clock.ahead_s = agreed_s(now_s, state.now_s) - now_s
    return clock
