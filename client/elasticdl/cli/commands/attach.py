"""``elasticdl attach``: shows a running job as the terminal in which it was started does."""

from __future__ import annotations

import asyncio
import time

from elasticdl.cli import exit_codes, interrupts
from elasticdl.cli.display.consoles import JobConsole
from elasticdl.cli.display.live import JobView
from elasticdl.cli.display.next_steps import find_next_step
from elasticdl.cli.display.report import print_end, print_summary
from elasticdl.cli.jobs.accepted import leaving_lines
from elasticdl.cli.jobs.handle import POLL_S, JobHandle, first_ended, until_ended, until_first_ends
from elasticdl.master.core import State
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.process.clock import SystemClock
from elasticdl.views import reading
from elasticdl.views.job_monitor import JobMonitor
from elasticdl.views.lost_time import GOODPUT_BATCHES_MIN, goodput_of
from elasticdl.views.report import build

TICK_S = 0.25
END_S_MAX = 10.0
"""Seconds in which the log of an ended job has to become readable."""


def attach(job: JobHandle, *, is_new: bool = False) -> int:
    """Show a job until it has ended. Returns the exit code of the job, or ``INTERRUPTED`` if the user left it.

    When nothing reads the output any more, that counts as leaving.
    """
    view = JobView(SystemClock())
    try:
        if job.condition().is_running:
            if not is_new:
                view.print_line(f"Attached to job {job.job}. Ctrl-C leaves it running.")
            if not asyncio.run(_follow(job, view)):
                view.close()
                view.console.print_line(leaving_lines(job.arguments))
                return exit_codes.INTERRUPTED
    finally:
        view.close()
    return _show_end(job, view.console)


async def _follow(job: JobHandle, view: JobView) -> bool:
    """Show the job until nothing runs it any more; False: the user left before, or nothing reads the output."""
    left, loop = asyncio.Event(), asyncio.get_running_loop()
    with interrupts.handled(loop, lambda _: left.set()):
        ending = until_ended(job, lambda text: view.print_line(f"Waiting: {text}"))
        showing, *_ = await first_ended(_show(job, view), ending, left.wait())
    if job.condition().is_running and not showing.cancelled():
        showing.result()
    return not left.is_set() and not view.console.has_lost_reader


def _show_end(job: JobHandle, console: JobConsole) -> int:
    """Print the end of the job as ``elasticdl train`` does; returns the exit code."""
    state = asyncio.run(_end_of(job))
    step = find_next_step(job, state)
    # The launcher measures a run at its end, unless it is killed.
    has_ended = state.is_final or bool(state.measured and state.measured.ended_s)
    if state.spec is None or not has_ended:
        raise UserError(f"{job.job} {job.condition().end}", hint=step)
    print_summary(build(state), console)
    guilty = state.failure.guilty if state.failure else ""
    return print_end(state, log=f"elasticdl logs {job.arguments} {guilty}", next_step=step)


async def _end_of(job: JobHandle) -> State:
    """The job at its end. Another command may read its log at the moment."""
    deadline_s = time.monotonic() + END_S_MAX
    while True:
        try:
            async with job.open() as bus:
                return (await reading.exact(bus, all_evaluations=True)).state
        except (TransientError, UserError):
            if time.monotonic() >= deadline_s:
                raise
        await asyncio.sleep(POLL_S)


async def _show(job: JobHandle, view: JobView) -> None:
    """Show the job, as long as something reads the output."""
    printed = job.logs.printed()
    async with job.open() as bus:
        past = await reading.exact(bus, all_evaluations=True)
        view.clock = reading.clock_of(past.state)
        view.on_start(past.state)
        monitor = JobMonitor(past, view.clock, view.on_record)

        async def tick() -> None:
            while not view.console.has_lost_reader:
                for pod, line in printed():
                    view.print_line(f"{pod} | {line}")
                view.show(monitor.state, monitor.heartbeats, goodput_of(monitor.state.measured, GOODPUT_BATCHES_MIN))
                await asyncio.sleep(TICK_S)

        await until_first_ends(monitor.follow(bus.log), monitor.listen(bus), tick())
