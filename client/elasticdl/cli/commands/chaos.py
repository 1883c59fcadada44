"""``elasticdl chaos``: kills random processes of a running job at given rates, to test that its audit stays exact."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory, root_argument
from elasticdl.cli.local.local_job import BROKER
from elasticdl.master.core import State
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.options import Seconds
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.names import MASTER, Service
from elasticdl.shared.pod_instances import pid_of
from elasticdl.views import reading
from elasticdl.views.reading import Reading

ALL = "all-"
TARGETS = (Service.WORKER.value, Service.PS.value, MASTER, BROKER, ALL + Service.WORKER.value, ALL + Service.PS.value)
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Which processes are killed every ``mean_s`` seconds on average (a Poisson process).

    Attributes:
        targets: killed at the same moment: one process of a kind, or with ``all-`` all of them.
        mean_s: mean time between two such moments.
    """

    targets: tuple[str, ...]
    mean_s: float

    def __str__(self) -> str:
        return "+".join(self.targets)


def parse_rate(text: str) -> Rate:
    """``worker:5s`` -> one worker every five seconds on average; ``ps+master:30s`` -> both at once."""
    names, colon, mean = text.rpartition(":")
    targets = tuple(names.split("+"))
    unknown = [target for target in targets if target not in TARGETS]
    problem, mean_s = "", 0.0
    if not colon:
        problem = "is not of the form TARGET:SECONDS or TARGET+TARGET:SECONDS"
    elif unknown:
        problem = f"has no valid target: {unknown[0]!r} is none of {', '.join(TARGETS)}"
    elif not (mean_s := _seconds(mean)):
        problem = f"has no valid mean time: {mean!r} is not a number of seconds above 0, such as 5s or 0.5s"
    if problem:
        raise UserError(
            f"--kill={text} {problem}", hint="Examples: --kill=worker:5s, --kill=ps+master:30s.", usage=True
        )
    return Rate(targets=targets, mean_s=mean_s)


def check(rates: Sequence[Rate], spec: JobSpec) -> None:
    """Refuse to kill ps of a job that has none."""
    targets = {target.removeprefix(ALL) for rate in rates for target in rate.targets}
    if Service.PS in targets and spec.has_ring and not spec.ps_pods:
        raise UserError(
            "this job has no parameter servers: its workers form a ring",
            hint="Kill workers: --kill=worker:5s. The leader of the ring is one of them.",
        )


def _seconds(text: str) -> float:
    """A duration; 0: it is not a positive one."""
    try:
        return max(0.0, Seconds(text))
    except ValueError:
        return 0.0


def chaos(job: str, root: Path, rates: list[Rate], *, duration_s: float, seed: int | None) -> None:
    """Kill processes until the job or the given time ends.

    Args:
        duration_s: seconds; 0: until the job ends.
        seed: of the random times and processes.
    """
    run = run_directory.find(root, job)
    if not run.is_launched(run.read()):
        raise UserError(f"job {run.job} is not running", hint=f"To list all jobs: elasticdl jobs{root_argument(root)}")
    kills = asyncio.run(_kill(run, rates, duration_s or float("inf"), random.Random(seed)))  # noqa: S311 - no secret
    console = plain_console()
    text = ", ".join(f"{number} x {target}" for target, number in kills.items()) or "nothing"
    console.print(f"Killed {text}.")


async def _kill(run: RunDirectory, rates: list[Rate], duration_s: float, chance: random.Random) -> Mapping[str, int]:
    kills: Counter[str] = Counter()
    console = plain_console()
    started_s = time.monotonic()
    due = {rate: started_s + chance.expovariate(1 / rate.mean_s) for rate in rates}
    async with open_bus(run) as bus:
        job = await reading.exact(bus)
        state = job.state
        following = asyncio.create_task(_follow(bus.log, job))
        try:
            while run.is_launched(run.read()) and not state.is_final and time.monotonic() < started_s + duration_s:
                if state.spec is not None:
                    check(rates, state.spec)
                await asyncio.sleep(POLL_S)
                now_s = time.monotonic()
                for rate, due_s in due.items():
                    if now_s < due_s:
                        continue
                    due[rate] = now_s + chance.expovariate(1 / rate.mean_s)
                    kinds, names = kill(rate, partial(_living, run, state), chance)
                    if names:
                        kills["+".join(kinds)] += 1
                        console.print(f"[{now_s - started_s:6.1f} s] Killed {', '.join(names)}")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return kills


async def _follow(log: EventLog, job: Reading) -> None:
    async for _ in reading.following(log, job):
        pass


def kill(rate: Rate, living: Callable[[str], Mapping[str, int]], chance: random.Random) -> tuple[list[str], list[str]]:
    """Kill the processes that a rate selects.

    Args:
        rate: its targets; a target that is given twice means two processes.
        living: target -> name and process id of all running processes of that kind.

    Returns:
        The targets of which a process was killed, and the names of the processes.
    """
    kinds: list[str] = []
    killed: list[str] = []
    for target in rate.targets:
        pids = {name: pid for name, pid in living(target).items() if name not in killed}
        names = sorted(pids)
        if names and not target.startswith(ALL):
            names = [chance.choice(names)]
        hit = [name for name in names if _kill_one(pids[name])]
        kinds += [target] if hit else []
        killed += hit
    return kinds, killed


def _living(run: RunDirectory, state: State, target: str) -> Mapping[str, int]:
    if target in (MASTER, BROKER):
        pid = run.read().pids.get(target, 0)
        return {target: pid} if pid else {}
    running = state.running(Service(target.removeprefix(ALL)))
    pids = {pod.name: pid_of(pod.instance) for pod in running if not pod.is_hosted}  # A worker of a ring hosts ps-0.
    return {name: pid for name, pid in pids.items() if pid}


def _kill_one(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
