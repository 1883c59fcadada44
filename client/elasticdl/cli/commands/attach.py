"""``elasticdl attach``: shows a running job as the terminal in which it was started does."""

from __future__ import annotations

import asyncio

from elasticdl.cli import exit_codes, interrupts
from elasticdl.cli.display.consoles import JobConsole, error_console, error_text
from elasticdl.cli.display.live import JobView
from elasticdl.cli.display.report import print_summary
from elasticdl.cli.jobs.handle import JobHandle
from elasticdl.cli.jobs.run_directory import INTERRUPTED
from elasticdl.cli.local.job_monitor import JobMonitor
from elasticdl.master.snapshots.recovery import recover
from elasticdl.shared.messages.commands import JobState

TICK_S = 0.25
GONE_POLL_S = 1.0
"""Seconds between two checks whether the job is still running."""


def attach(job: JobHandle) -> int:
    """Show a job until it has ended.

    Returns:
        The exit code: that of the job, or ``INTERRUPTED`` if the user left it.

    Raises:
        ElasticDLError: its event log can't be reached.
    """
    view = JobView()
    try:
        if job.condition().is_running:
            view.print_line(f"Attached to job {job.job}. Ctrl-C leaves it running.")
            if not asyncio.run(_follow(job, view)):
                view.close()
                view.console.print_line(
                    f"The job continues. To see it again: elasticdl attach {job.arguments}\n"
                    f"To stop it: elasticdl stop {job.arguments}"
                )
                return exit_codes.INTERRUPTED
    finally:
        view.close()
    return _show_end(job, view.console)


async def _follow(job: JobHandle, view: JobView) -> bool:
    """Show the job until nothing runs it any more; False: the user left before."""
    left, loop = asyncio.Event(), asyncio.get_running_loop()
    with interrupts.handled(loop, lambda _: left.set()):
        showing = asyncio.create_task(_show(job, view))
        tasks = [showing, asyncio.create_task(_until_gone(job)), asyncio.create_task(left.wait())]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if job.condition().is_running and not showing.cancelled():
        showing.result()
    return not left.is_set()


def _show_end(job: JobHandle, console: JobConsole) -> int:
    """Print the end of the job as ``elasticdl train`` does; returns the exit code."""
    condition, report = job.condition(), job.report()
    if report:
        print_summary(report, console)
    if condition.state == JobState.SUCCEEDED.value:
        return exit_codes.SUCCESS
    errors = error_console()
    if condition.state == JobState.FAILED.value:
        errors.print(error_text(condition.message), soft_wrap=True)
    if condition.state == INTERRUPTED:
        errors.print(error_text(f"{job.job} was interrupted: its launcher is not running."), soft_wrap=True)
    errors.print(condition.next_step or f"For details: elasticdl status {job.arguments}", soft_wrap=True)
    return exit_codes.INTERRUPTED if condition.state == JobState.STOPPED.value else exit_codes.FAILURE


async def _show(job: JobHandle, view: JobView) -> None:
    """Show the job.

    Raises:
        ElasticDLError: its event log can't be reached, because it has just ended for example.
    """
    printed = job.logs.new_lines(printed=True)
    async with job.open() as bus:
        monitor = JobMonitor(view, past=await recover(bus))
        reading = [asyncio.create_task(monitor.follow(bus.log)), asyncio.create_task(monitor.listen(bus))]
        try:
            while not any(task.done() for task in reading):
                for pod, line in printed():
                    view.print_line(f"{pod} | {line}")
                view.show(monitor.state, monitor.heartbeats, None)
                await asyncio.wait(reading, timeout=TICK_S, return_when=asyncio.FIRST_COMPLETED)
            for task in reading:
                if task.done():
                    task.result()
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


async def _until_gone(job: JobHandle) -> None:
    """Wait until nothing runs the job any more. Its NATS server ends with it."""
    while job.condition().is_running:
        await asyncio.sleep(GONE_POLL_S)
