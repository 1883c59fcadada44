"""How a ring scales to 64 machines: a queueing model, with what members cost each other as measured here.

    python benchmarks/ring_scaling.py [--members 2 4 8] [--seconds 6] [--gigabits 25] [--hop_us 30]

First, members on this machine reduce an array of 4 KB all the time. What a step costs the leader more than a follower,
in CPU time because they share the cores, is an offer to receive and a word to send for each follower.

Then steps are drawn. Each member computes for a time that varies; its offer waits at the leader until those before it
are received, and the leader's words leave one after the other. When the last member has its word, the sum takes
``2 (n - 1)`` hops, in each of which every member sends and receives ``bytes / n`` at the rate of its network card or of
its CPU, whichever is slower (Patarasuk and Yuan, 2009). Nothing overlaps, so real steps are not slower than that.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.allreduce_kills import Launcher, wait_for_all
from benchmarks.thread_cpu import cpu_s

ELEMENTS = 1000
SIZES = (2, 4, 8, 16, 32, 64)
STEPS = 2000
VARIATION = 0.03
"""Standard deviation of the time that a step is computed, relative to it: as measured with a core for each worker."""
CPU_S_PER_GB = 0.64
"""Of each of four members through sockets, see the table of ``benchmarks/allreduce.py``: both phases of a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``compute_s``: seconds of one worker for a step; ``gradient_bytes``: what is added up."""

    name: str
    compute_s: float
    gradient_bytes: float


MODELS = (
    Model(name="perceptron, 2 MB", compute_s=0.008, gradient_bytes=2e6),
    Model(name="ResNet-20, 1.1 MB", compute_s=0.11, gradient_bytes=1.1e6),
    Model(name="ResNet-50, 102 MB", compute_s=0.5, gradient_bytes=102e6),
    Model(name="Transformer, 440 MB", compute_s=1.5, gradient_bytes=440e6),
)
"""The first two compute as long as on a core of this machine, the others as on a GPU with a large minibatch."""


def cost_of_step(members: int, seconds: float) -> tuple[float, float]:
    """CPU seconds of a step: of the leader, and of a follower."""
    launcher = Launcher(members, ELEMENTS)
    wait_for_all(launcher, members)
    ids = {name: launcher.processes[name][0].pid for name in launcher.order()}
    before, steps = {name: sum(cpu_s(one).values()) for name, one in ids.items()}, 0
    end_s = time.monotonic() + seconds
    leader, *followers = launcher.order()
    while time.monotonic() < end_s:
        steps += sum(name == leader and said[0] == "committed" for name, said in launcher.events(0.01))
    spent = {name: sum(cpu_s(one).values()) - before[name] for name, one in ids.items()}
    for process, _ in launcher.processes.values():
        process.kill()
    return spent[leader] / steps, statistics.mean(spent[name] for name in followers) / steps


def step_s(
    model: Model, members: int, message_s: float, bytes_per_s: float, hop_s: float, chance: random.Random
) -> float:
    """The time of one step; ``message_s``: what a follower costs the leader, half of it to receive and half to send."""
    computed = sorted(max(0.0, chance.gauss(model.compute_s, VARIATION * model.compute_s)) for _ in range(members))
    received_s = computed[0]
    for offered_s in computed[1:]:
        received_s = max(received_s, offered_s + hop_s) + message_s / 2
    told_s = received_s + (members - 1) * message_s / 2 + hop_s
    hops = 2 * (members - 1)
    return told_s + hops * (hop_s + model.gradient_bytes / members / bytes_per_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--gigabits", type=float, default=25)
    parser.add_argument("--hop_us", type=float, default=30)
    arguments = parser.parse_args()
    message_s = 0.0
    for members in arguments.members:
        leader_s, follower_s = cost_of_step(members, arguments.seconds)
        message_s = (leader_s - follower_s) / (members - 1)
        own = f"CPU of a step {1e6 * leader_s:5.0f} us (leader), {1e6 * follower_s:5.0f} us (follower)"
        print(f"{members:3} members: {own}, {1e6 * message_s:4.0f} us of the leader for each follower")
    bytes_per_s = min(arguments.gigabits * 1e9 / 8, 2e9 / CPU_S_PER_GB)
    chance = random.Random(0)
    print("\nper cent of the records per second of as many workers that wait for nothing, by members")
    print(f"{'':22}" + "".join(f"{members:7}" for members in SIZES))
    for model in MODELS:
        parts = []
        for members in SIZES:
            seconds = statistics.mean(
                step_s(model, members, message_s, bytes_per_s, arguments.hop_us / 1e6, chance) for _ in range(STEPS)
            )
            parts.append(100 * model.compute_s / seconds)
        print(f"{model.name:22}" + "".join(f"{part:7.0f}" for part in parts))


if __name__ == "__main__":
    main()
