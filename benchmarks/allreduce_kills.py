"""From the SIGKILL of a member of a ring to the next committed step of the others, and how long a joiner stops them.

    python benchmarks/allreduce_kills.py [--kills 20] [--members 3] [--megabytes 10] [--joins] [--gloo PYTHON]

Each member is a process with a replica of one vector; its worker computes no gradients but pushes constant ones, so the
ring reduces all the time. This process forms the generations, and learns of a death as a launcher does: the process has
ended. A killed member is replaced; the next kill comes at a random time after the new one takes part. Members are
killed in turns, so a third of the kills hit the leader.

With ``--joins``, the replacement is measured as well: the longest time between two commits of a survivor, from the
start of the new process until it has committed. In turns, the new member copies the state from the leader while the
others continue, and while the generation is formed that it is in (as in the first version).

With ``--gloo``, a group of as many Gloo processes (see ``gloo_kills.py``) is killed in turns with the ring. Only one of
both is not suspended. PYTHON is an interpreter with PyTorch.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName, TaskId
from elasticdl.shared.wire.buffers import Bytes
from elasticdl.worker.ps_client.requests import PushRequest
from elasticdl.worker.ring.listener import RingSettings
from elasticdl.worker.ring.ports import BatchFacts, Generation
from elasticdl.worker.ring.replica_set import ReplicaSet

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.gloo_kills import GlooGroup

BATCHES = 1 << 40
GIVE_UP_S = 30.0


class Replica:
    """A vector; a round has one batch of each of ``width`` tasks. Follows ``ReplicaState``."""

    def __init__(self, elements: int, width: int, committed: Callable[[int], None]) -> None:
        self._weights = np.zeros(elements, np.float32)
        self._width, self._committed = width, committed
        self.has_model, self.step = False, 0

    @property
    def gradient_size(self) -> int:
        return self._weights.size

    @property
    def magnitudes(self) -> tuple[int, int]:
        return self._weights.size, 0

    def round_of(self, task: TaskId, batch: int) -> Sequence[tuple[TaskId, int]]:  # noqa: ARG002
        return [(TaskId(one), batch) for one in range(self._width)]

    def next_batch(self, task: TaskId, batches: int) -> int:  # noqa: ARG002
        return self.step

    def is_open(self, task: TaskId, batch: int) -> bool:  # noqa: ARG002
        return batch == self.step

    def apply(self, batches: Sequence[BatchFacts], gradient: Any) -> None:  # noqa: ARG002
        self._weights += gradient
        self.step += 1
        self._committed(self.step)

    is_complete = False

    def checksums(self) -> tuple[int, ...]:
        return ()

    def save(self) -> Callable[[], Sequence[Bytes]]:
        weights, step = self._weights.copy(), np.array([self.step], np.int64)
        return lambda: [weights.view(np.uint8), step.view(np.uint8)]

    def load(self, parts: Sequence[Bytes]) -> None:
        self._weights = parts[0].view(np.float32).copy()
        self.step, self.has_model = int(parts[1].view(np.int64)[0]), True


class Process:
    """One member. Follows ``Membership`` and ``Leading``."""

    def __init__(self, name: str, incarnation: str, parent: Connection, elements: int, width: int) -> None:
        self._parent, self._width = parent, width
        self._lock = threading.Lock()
        self._generation: Generation | None = None
        self._state = Replica(elements, width, self._on_commit)
        self._gradient = np.ones(elements, np.float32)
        settings = RingSettings(worker=PodName(name), incarnation=Incarnation(incarnation), token="benchmark")
        self._ring = ReplicaSet(settings, self._state, self, self, failed=lambda _: os._exit(1))
        self._member = RingMember(worker=settings.worker, incarnation=settings.incarnation, address=self._ring.address)

    def run(self) -> None:
        """Push the batches of this member, and those of tasks that no other one has."""
        self._ring.start()
        pushed: set[tuple[int, int]] = set()
        while True:
            step = self._state.step
            for task in self._own_tasks():
                if (task, step) not in pushed and self._ring.wait_until_open(TaskId(task), step, 0):
                    request = PushRequest(
                        task=TaskId(task), batch=step, batches=BATCHES, records=1, checksum=0,
                        dense_gradient=self._gradient,
                    )  # fmt: skip
                    self._ring.push(request)
                    pushed = {key for key in pushed if key[1] >= step} | {(task, step)}
            self._ring.wait_until_open(TaskId(0), step + 1, 0.002)

    def _on_commit(self, step: int) -> None:
        number = self._generation.number if self._generation else 0
        self._tell("committed", step, time.monotonic(), number)

    def report_ready(self, *, left: int, step: int, has_model: bool, is_near: bool, reason: str) -> None:  # noqa: ARG002
        self._tell("ready", self._member, left, is_near, step, reason)

    def report_difference(self, *, step: int, tensor: int) -> None: ...

    def on_generation(self, receive: Callable[[Generation], None]) -> None:
        def listen() -> None:
            with contextlib.suppress(EOFError, OSError):  # The launcher has ended.
                while True:
                    self._generation = self._parent.recv()
                    receive(self._generation)
            os._exit(0)

        threading.Thread(target=listen, daemon=True).start()

    def lead(self, generation: Generation) -> None:  # noqa: ARG002
        if not self._state.has_model:
            self._state.has_model = True
            threading.Thread(target=self._ring.model_ready).start()

    def follow(self, generation: Generation) -> None: ...

    def credits(self, generation: Generation) -> Mapping[PodName, Incarnation]:
        return {PodName("ps-0"): Incarnation(str(generation.number))}

    def _own_tasks(self) -> Sequence[int]:
        generation = self._generation
        if generation is None or self._member not in generation.members:
            return ()
        return range(generation.members.index(self._member), self._width, len(generation.members))

    def _tell(self, *what: object) -> None:
        with self._lock:
            self._parent.send(what)


def member(name: str, incarnation: str, parent: Connection, elements: int, width: int) -> None:
    """The entry point of a process."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    Process(name, incarnation, parent, elements, width).run()


class Launcher:
    """Starts and kills members, and forms generations."""

    def __init__(self, members: int, elements: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["elasticdl.worker.ring.replica_set"])
        self._width, self._elements = members, elements
        self._started = 0
        self.number = 0
        self._members: tuple[RingMember, ...] = ()
        self._ready: dict[str, tuple[RingMember, bool]] = {}
        self.joins_near = True
        """False: a process is a member as soon as it is ready, and copies the state then."""
        self.processes: dict[str, tuple[Any, Connection]] = {}
        self.reasons: list[str] = []
        for _ in range(members):
            self.start_member()

    def start_member(self) -> None:
        """Start a process."""
        own, others = self._context.Pipe()
        incarnation = f"i{self._started}"
        arguments = (f"worker-{self._started}", incarnation, others, self._elements, self._width)
        process = self._context.Process(target=member, args=arguments, daemon=True)
        process.start()
        others.close()
        if self._members:
            own.send(Generation(number=self.number, members=self._members))
        self.processes[incarnation] = process, own
        self._started += 1

    def signal(self, number: signal.Signals) -> None:
        """Suspend all members, or let them continue."""
        for process, _ in self.processes.values():
            os.kill(process.pid, number)

    def order(self) -> list[str]:
        """Members of the present generation by rank."""
        return [one.incarnation for one in self._members]

    def events(self, wait_s: float) -> list[tuple[str, Any]]:
        """What members say within a time, and which of them are gone; forms generations by it."""
        names = {own: name for name, (_, own) in self.processes.items()}
        found: list[tuple[str, Any]] = []
        for source in wait(list(names), wait_s):
            if not isinstance(source, Connection):
                continue
            try:
                said = source.recv()
            except (EOFError, OSError):
                self._gone(names[source])
                continue
            if said[0] == "ready":
                self._on_ready(*said[1:4])
                self.reasons.append(said[5])
            found.append((names[source], said))
        return found

    def _gone(self, name: str) -> None:
        self.processes.pop(name)[1].close()
        self._ready.pop(name, None)
        self._form(is_loss=True)

    def _on_ready(self, one: RingMember, left: int, is_near: bool) -> None:
        if one in self._members and left < self.number:
            return
        self._ready[one.incarnation] = one, is_near
        self._form(is_loss=False)

    def _form(self, *, is_loss: bool) -> None:
        kept = [one for one in self._members if one.incarnation in self.processes]
        joined = [
            one
            for one, is_near in self._ready.values()
            if one not in kept and (is_near or not kept or not self.joins_near)
        ]
        waits = any(one.incarnation not in self._ready for one in kept)
        if (waits and not is_loss and not joined) or (self.number == 0 and len(joined) < self._width):
            return
        self.number += 1
        self._members = (*kept, *joined)
        self._ready.clear()
        for _, connection in self.processes.values():
            with contextlib.suppress(OSError):  # It has just been killed.
                connection.send(Generation(number=self.number, members=self._members))


def wait_for_all(launcher: Launcher, members: int) -> tuple[list[float], float]:
    """Wait until every member has committed two steps as a member, the new one included.

    Returns:
        The times between two commits of a member, and the seconds until all have committed.
    """
    commits: dict[str, int] = {}
    last_s: dict[str, float] = {}
    gaps_s: list[float] = []
    began_s = time.monotonic()
    while time.monotonic() < began_s + GIVE_UP_S:
        for name, said in launcher.events(0.1):
            if said[0] != "committed" or name not in launcher.order():  # A joiner repeats the commits of the others.
                continue
            commits[name] = commits.get(name, 0) + 1
            if name in last_s:
                gaps_s.append(said[2] - last_s[name])
            last_s[name] = said[2]
        if sum(count >= 2 for count in commits.values()) >= members:
            return gaps_s, time.monotonic() - began_s
    raise SystemExit(f"the members do not commit: {commits}")


def kill_one(launcher: Launcher, rank: int) -> float:
    """Kill a member; returns the seconds until every survivor has committed a step in a later generation."""
    victim, generation = launcher.order()[rank], launcher.number
    killed_s = time.monotonic()
    os.kill(launcher.processes[victim][0].pid, signal.SIGKILL)
    survivors = {name for name in launcher.order() if name != victim}
    committed_s: dict[str, float] = {}
    while time.monotonic() < killed_s + GIVE_UP_S:
        for name, said in launcher.events(0.05):
            if said[0] == "committed" and said[3] > generation:
                committed_s.setdefault(name, said[2])
        if survivors <= set(committed_s):
            return max(committed_s[name] for name in survivors) - killed_s
    raise SystemExit(f"no step after a kill: {committed_s}; {launcher.reasons[-6:]}")


def kill_gloo(launcher: Launcher, group: GlooGroup, rank: int, after_s: float) -> float:
    """Kill a member of the other group, while the ring is suspended; returns the seconds of its survivors."""
    launcher.signal(signal.SIGSTOP)
    group.signal(signal.SIGCONT)
    time.sleep(after_s)
    seconds = group.kill(rank)
    group.replace()
    group.signal(signal.SIGSTOP)
    launcher.signal(signal.SIGCONT)
    return seconds


def print_seconds(name: str, seconds: Sequence[float], members: int) -> None:
    """How long survivors took."""
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    sys.stdout.write(
        f"{name}: {len(seconds)} kills of {members}: median {1e3 * statistics.median(seconds):.0f} ms, "
        f"p99 {1e3 * p99:.0f} ms, greatest {1e3 * max(seconds):.0f} ms\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--joins", action="store_true")
    parser.add_argument("--gloo", default="", metavar="PYTHON")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    group = GlooGroup(arguments.gloo, arguments.members, arguments.megabytes * 250_000) if arguments.gloo else None
    if group is not None:
        group.signal(signal.SIGSTOP)
    launcher = Launcher(arguments.members, arguments.megabytes * 250_000)
    seconds, gloo_seconds = [], []
    joins: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    for number in range(arguments.kills):
        gaps_s, joined_s = wait_for_all(launcher, arguments.members)
        if number:
            joins[launcher.joins_near].append((max(gaps_s), statistics.median(gaps_s), joined_s))
        launcher.joins_near = number % 2 == 0 or not arguments.joins
        until_s = time.monotonic() + chance.uniform(0, 0.3)
        while time.monotonic() < until_s:
            launcher.events(0.005)
        seconds.append(kill_one(launcher, number % arguments.members))
        if group is not None:
            gloo_seconds.append(kill_gloo(launcher, group, number % arguments.members, chance.uniform(0, 0.3)))
        launcher.start_member()
    print_seconds("ring", seconds, arguments.members)
    if group is not None:
        print_seconds("Gloo", gloo_seconds, arguments.members)
        group.close()
    for is_near, found in joins.items():
        if arguments.joins and found:
            longest, usual, joined = [[1e3 * one[part] for one in found] for part in range(3)]
            sys.stdout.write(
                f"{len(found)} joins, copied {'before' if is_near else 'in'} the formation: longest time between two "
                f"commits, median {statistics.median(longest):.0f} ms, greatest {max(longest):.0f} ms (usual time "
                f"{statistics.median(usual):.0f} ms); all take part after {statistics.median(joined):.0f} ms\n"
            )


if __name__ == "__main__":
    main()
