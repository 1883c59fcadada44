"""``chaos``: kills processes of a running job at random, at stated rates. The job must not mind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.open_log import open_bus
from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.local_job import BROKER
from elasticdl.master.core import State, evolve
from elasticdl.master.snapshots.recovery import Recovered, recover
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import MASTER, Service

ALL = "all-"
TARGETS = (Service.WORKER.value, Service.PS.value, MASTER, BROKER, ALL + Service.WORKER.value, ALL + Service.PS.value)
POLL_S = 0.05
_SECONDS = re.compile(r"\d+(\.\d+)?s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Who is killed every ``mean_s`` seconds on average (a Poisson process).

    Attributes:
        targets: killed in the same moment: one process of a kind, or ``all-`` of them.
        mean_s: mean time between two such moments.
    """

    targets: tuple[str, ...]
    mean_s: float

    def __str__(self) -> str:
        return "+".join(self.targets)


def parse_rate(text: str) -> Rate:
    """``worker:5s`` -> one worker every five seconds on average; ``ps+master:30s`` -> both at once.

    Raises:
        UserError: something else.
    """
    names, colon, mean = text.rpartition(":")
    targets = tuple(names.split("+"))
    unknown = [target for target in targets if target not in TARGETS]
    problem = ""
    if not colon:
        problem = "is not TARGET:SECONDS or TARGET+TARGET:SECONDS"
    elif unknown:
        problem = f"names no target with {unknown[0]!r}; targets are {', '.join(TARGETS)}"
    elif not _SECONDS.fullmatch(mean) or float(mean.removesuffix("s")) <= 0:
        problem = f"says {mean!r} where the mean time stands, which is more than 0 seconds, such as 5s or 0.5s"
    if problem:
        raise UserError(
            f"--kill={text} {problem}", hint="For example --kill worker:5s or --kill ps+master:30s.", usage=True
        )
    return Rate(targets=targets, mean_s=float(mean.removesuffix("s")))


def chaos(job: str, root: Path, rates: list[Rate], *, duration_s: float, seed: int | None) -> None:
    """Kill until the job or the time is over.

    Args:
        job: id or name of a running job.
        root: where the run directories are.
        rates: who is killed, and how often.
        duration_s: seconds; 0: until the job ends.
        seed: of the times and victims.

    Raises:
        UserError: the job is not running.
    """
    run = run_directory.find(root, job)
    if not run.is_locked():
        raise UserError(f"job {run.job} is not running", hint="See: elasticdl jobs")
    kills = asyncio.run(_kill(run, rates, duration_s or float("inf"), random.Random(seed)))  # noqa: S311 - no secret
    console = plain_console()
    text = ", ".join(f"{count} x {target}" for target, count in kills.items()) or "nobody"
    console.print(f"killed {text}")


async def _kill(run: RunDirectory, rates: list[Rate], duration_s: float, chance: random.Random) -> Mapping[str, int]:
    kills: Counter[str] = Counter()
    console = plain_console()
    started_s = time.monotonic()
    due = {rate: started_s + chance.expovariate(1 / rate.mean_s) for rate in rates}
    async with open_bus(run) as bus:
        recovered = await recover(bus)
        state = recovered.state
        following = asyncio.create_task(_follow(bus.log, recovered))
        try:
            while run.is_locked() and not state.is_final and time.monotonic() < started_s + duration_s:
                await asyncio.sleep(POLL_S)
                now_s = time.monotonic()
                for rate, due_s in due.items():
                    if now_s < due_s:
                        continue
                    due[rate] = now_s + chance.expovariate(1 / rate.mean_s)
                    kinds, names = strike(rate, partial(_living, run, state), chance)
                    if names:
                        kills["+".join(kinds)] += 1
                        console.print(f"[{now_s - started_s:6.1f} s] killed {', '.join(names)}")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return kills


async def _follow(log: EventLog, recovered: Recovered) -> None:
    async for record in log.read(recovered.read_seq):
        evolve(recovered.state, record)


def strike(
    rate: Rate, living: Callable[[str], Mapping[str, int]], chance: random.Random
) -> tuple[list[str], list[str]]:
    """SIGKILL for whoever a rate aims at.

    Args:
        rate: its targets; one that is named twice means two processes.
        living: target -> name and process id of all who are there to be killed.
        chance: chooses among them.

    Returns:
        The targets that were hit, and the names of the processes.
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
    return {pod.name: pod.pid for pod in state.running(Service(target.removeprefix(ALL))) if pod.pid}


def _kill_one(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
