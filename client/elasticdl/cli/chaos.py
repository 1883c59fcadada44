"""``chaos``: kills processes of a running job at random, at stated rates. The job must not mind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from elasticdl.cli import run_directory
from elasticdl.cli.launcher.local_job import BROKER
from elasticdl.cli.open_log import open_bus
from elasticdl.cli.run_directory import RunDirectory
from elasticdl.master.core import State, evolve
from elasticdl.master.recovering import Recovered, recover
from elasticdl.shared.bus.ports import EventLog
from elasticdl.shared.errors import UserError
from elasticdl.shared.names import MASTER, Service

ALL = "all-"
TARGETS = (Service.WORKER.value, Service.PS.value, MASTER, BROKER, ALL + Service.WORKER.value, ALL + Service.PS.value)
POLL_S = 0.05
_RATE = re.compile(r"(?P<targets>[a-z+-]+):(?P<mean>\d+(\.\d+)?)s?")


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
    match = _RATE.fullmatch(text)
    targets = tuple(match["targets"].split("+")) if match else ()
    if match is None or not set(targets) <= set(TARGETS) or float(match["mean"]) <= 0:
        raise UserError(
            f"--kill={text} is not TARGET:SECONDS or TARGET+TARGET:SECONDS",
            hint=f"For example --kill worker:5s or --kill ps+master:30s; targets are {', '.join(TARGETS)}.",
            usage=True,
        )
    return Rate(targets=targets, mean_s=float(match["mean"]))


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
    console = Console(highlight=False, markup=False, soft_wrap=True)
    text = ", ".join(f"{count} x {target}" for target, count in kills.items()) or "nobody"
    console.print(f"killed {text}")


async def _kill(run: RunDirectory, rates: list[Rate], duration_s: float, chance: random.Random) -> Mapping[str, int]:
    kills = dict.fromkeys((str(rate) for rate in rates), 0)
    console = Console(highlight=False, markup=False, soft_wrap=True)
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
                    victims = [name for target in rate.targets for name in _kill_some(run, state, target, chance)]
                    if victims:
                        kills[str(rate)] += 1
                        console.print(f"[{now_s - started_s:6.1f} s] killed {', '.join(victims)}")
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    return kills


async def _follow(log: EventLog, recovered: Recovered) -> None:
    async for record in log.read(recovered.read_seq):
        evolve(recovered.state, record)


def _kill_some(run: RunDirectory, state: State, target: str, chance: random.Random) -> list[str]:
    """SIGKILL for one process of a kind, or all of them; the names of those who were there to be killed."""
    if target in (MASTER, BROKER):
        living = {target: run.read().pids.get(target, 0)}
    else:
        living = {pod.name: pod.pid for pod in state.running(Service(target.removeprefix(ALL)))}
    names = sorted(name for name, pid in living.items() if pid)
    if not target.startswith(ALL):
        names = names and [chance.choice(names)]
    killed = []
    for name in names:
        with contextlib.suppress(ProcessLookupError):
            os.kill(living[name], signal.SIGKILL)
            killed.append(name)
    return killed
