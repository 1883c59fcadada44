"""``JobLogs``: what the event logs of running jobs say, each followed on one loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.controller.core import Curve
from elasticdl.controller.service.measuring import PsCpu, PsLoad, Throughput
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.process.clock import SystemClock
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.retries import Backoff
from elasticdl.views import reading
from elasticdl.views.job_monitor import JobMonitor
from elasticdl.views.progress import ProgressSnapshot, Rate, progress_snapshot, records_of

TICK_S = 1.0
BACKOFF = Backoff(first_s=1.0, max_s=15.0)

_log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """A job by its log.

    Attributes:
        wanted: the workers and ps that its master aims at.
        left_out: numbers of the workers that were asked to leave.
        curve: its throughput by number of workers.
        ps_load: None: not known yet.
    """

    progress: ProgressSnapshot
    wanted: tuple[int, int]
    left_out: tuple[int, ...] = ()
    curve: Curve = field(default_factory=Curve)
    ps_load: PsLoad | None = None

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the end at the present pace; None: unknown."""
        done = self.progress.done
        if done <= 0 or not self.progress.elapsed_s:
            return None
        return self.progress.elapsed_s * (1 - done) / done


class JobLogs:
    """Follows the logs of jobs; the methods are for one thread.

    Args:
        on_change: is called, on the loop's thread, when what is known of a job has changed.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._loop = LoopThread()
        self._facts: dict[str, JobFacts] = {}
        self._followed: dict[str, Future[None]] = {}
        self._throughputs: dict[str, Throughput] = {}
        """What was measured lasts as long as the TrainingJob is suspended and resumed."""

    def follow(self, key: str, handle: KubernetesJobHandle) -> None:
        """Follow a job from now on, unless that is done."""
        if key not in self._followed:
            self._followed[key] = self._loop.spawn(self._follow(key, handle))

    def forget(self, key: str) -> None:
        """Follow a job no longer; the last facts are forgotten, too."""
        if (future := self._followed.pop(key, None)) is not None:
            future.cancel()
        self._facts.pop(key, None)

    def facts(self, key: str) -> JobFacts | None:
        """What is known of a job; None: nothing yet."""
        return self._facts.get(key)

    def forget_measurements(self, key: str) -> None:
        """A TrainingJob is gone."""
        self._throughputs.pop(key, None)

    def stop(self) -> None:
        """Follow nothing any more."""
        self._loop.stop()

    async def _follow(self, key: str, handle: KubernetesJobHandle) -> None:
        for pause_s in BACKOFF.pauses():
            try:
                async with handle.open() as bus:
                    monitor = JobMonitor(await reading.exact(bus), SystemClock(), lambda _record, _state: None)
                    tasks = [
                        asyncio.create_task(each)
                        for each in (monitor.follow(bus.log), monitor.listen(bus), self._tick(key, monitor))
                    ]
                    try:
                        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                        for each in done:
                            each.result()
                    finally:
                        for each in tasks:
                            each.cancel()
                        await asyncio.gather(*tasks, return_exceptions=True)
            except ElasticDLError as error:
                _log.warning("the log of a job can't be followed", job=handle.job, reason=str(error))
            await asyncio.sleep(pause_s)

    async def _tick(self, key: str, monitor: JobMonitor) -> None:
        rate, ps_cpu = Rate(), PsCpu()
        throughput = self._throughputs.setdefault(key, Throughput())
        while True:
            state, now_s = monitor.state, reading.clock_of(monitor.state).now()
            progress = progress_snapshot(state, monitor.heartbeats, now_s, rate.update(now_s, records_of(state)))
            workers = progress.workers[0]
            throughput.update(now_s, workers, progress.records_per_s)
            facts = JobFacts(
                progress=replace(progress, goodput=monitor.meter.goodput(state)),
                wanted=(state.workers, 0 if state.job.has_ring else state.ps),
                left_out=state.left_out,
                curve=throughput.curve(),
                ps_load=ps_cpu.update(monitor.heartbeats.values(), workers),
            )
            if facts != self._facts.get(key):
                self._facts[key] = facts
                self._on_change()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(monitor.final.wait(), TICK_S)
            if monitor.final.is_set():
                await asyncio.sleep(TICK_S)
