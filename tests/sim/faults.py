"""What goes wrong and when: faults as values with a readable form, and the engine that makes them happen.

    at 1.250 kill worker-0                      at a virtual second
    on ps-0 push 5 freeze ps-0 for 3.000        when ps-0 passes its fifth ``push`` probe (counted over all its lives)

A new kind of fault is one function and one entry in ``ACTIONS``; give it a pattern in ``patterns.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.network import BROKER
from tests.sim.worker import Hang

from elasticdl.shared.names import PodName

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        action: a key of ``ACTIONS``.
        targets: names of processes, or ``broker``, ``store``.
        for_s: seconds that it lasts, where it lasts.
        at_s: when, unless a probe says it.
        probe: (process, what, how many times) that sets it off.
    """

    action: str
    targets: tuple[str, ...] = ()
    for_s: float = 0.0
    at_s: float = 0.0
    probe: tuple[str, str, int] | None = None

    def __str__(self) -> str:
        when = f"at {self.at_s:.3f}" if self.probe is None else "on {} {} {}".format(*self.probe)
        lasting = f" for {self.for_s:.3f}" if self.for_s else ""
        return " ".join([when, self.action, *self.targets]) + lasting

    @staticmethod
    def parse(line: str) -> Fault:
        """Inverse of ``str``."""
        words = line.split()
        probe, at_s = None, 0.0
        if words[0] == "at":
            at_s, rest = float(words[1]), words[2:]
        else:
            probe, rest = (words[1], words[2], int(words[3])), words[4:]
        for_s = 0.0
        if len(rest) > 2 and rest[-2] == "for":
            for_s, rest = float(rest[-1]), rest[:-2]
        if rest[0] not in ACTIONS:
            raise ValueError(f"no such fault: {line}")
        return Fault(action=rest[0], targets=tuple(rest[1:]), for_s=for_s, at_s=at_s, probe=probe)


class Faults:
    """Makes the faults of a schedule happen, until ``horizon_s``.

    Args:
        world: where.
        faults: what.
        horizon_s: from then on nothing new goes wrong, and what lasts is over.
    """

    def __init__(self, world: World, faults: tuple[Fault, ...], horizon_s: float) -> None:
        self._world = world
        self._horizon_s = horizon_s
        self._passed: dict[tuple[str, str], int] = {}
        self._waiting: dict[tuple[str, str, int], list[Fault]] = {}
        for fault in faults:
            if fault.probe:
                self._waiting.setdefault(fault.probe, []).append(fault)
        self._timed = [fault for fault in faults if not fault.probe]

    def start(self) -> None:
        """Begin."""
        for fault in self._timed:
            self._world.loop.later(fault.at_s, self._happen, fault)
        self._world.loop.later(self._horizon_s, self._calm)

    def passed(self, process: Process, what: str) -> None:
        """A process passed a probe."""
        if not self._waiting:
            return
        key = (process.name, what)
        count = self._passed[key] = self._passed.get(key, 0) + 1
        for fault in self._waiting.pop((process.name, what, count), []):
            self._happen(fault)

    def _happen(self, fault: Fault) -> None:
        if self._world.loop.time() < self._horizon_s or fault.at_s == self._horizon_s:
            self._world.note(f"FAULT {fault}")
            lasts_s = max(0.0, min(fault.for_s, self._horizon_s - self._world.loop.time()))
            ACTIONS[fault.action](self._world, fault.targets, lasts_s)

    def _calm(self) -> None:
        self._waiting.clear()
        self._world.network.calm = True
        self._world.note("faults are off")


def _kill(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    for name in targets:
        process = world.running(name)
        if process:
            process.end(-9)


def _crash(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    process = world.running(targets[0])
    if process:
        process.end(70)


def _stop(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    process = world.running(targets[0])
    if process:
        process.terminate()


def _freeze(world: World, targets: tuple[str, ...], for_s: float) -> None:
    process = world.running(targets[0])
    if process and not process.instance.frozen:
        process.instance.freeze()

        def unfreeze() -> None:
            world.note(
                f"{process.incarnation} continues" if process.instance.alive else f"{process.incarnation} died frozen"
            )
            process.instance.unfreeze()

        world.loop.later(for_s, unfreeze)


def _hang(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """A worker's next step never ends, and its other threads continue: ``hang worker-0``, in the user's code;
    ``hang worker-0 waiting``, in ours."""
    name, *how = targets
    world.hang(name, Hang(how[0]) if how else Hang.USER_CODE)


def _zombie(world: World, targets: tuple[str, ...], for_s: float) -> None:
    """The launcher loses sight of a process and starts another; the first lives on."""
    process = world.running(targets[0])
    if process:
        world.lose_sight(process)
        world.loop.later(for_s, process.end, -9)


def _lose_node(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The node of a process is lost; the end of the process is not reported."""
    process = world.running(targets[0])
    if process and world.launcher:
        world.launcher.lose_node(process)


def _lose_room(world: World, targets: tuple[str, ...], for_s: float) -> None:
    """A ps is killed, and there is no room for its next pods. A user asks for fewer ps while they wait."""
    ps, wanted = targets
    world.full_until_s[PodName(ps)] = world.loop.time() + for_s
    _kill(world, (ps,), 0.0)
    world.loop.later(for_s / 2, world.scale, int(wanted))


def _evict(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The cluster needs the room of a worker's or ps' pod: the process has time to stop."""
    process = world.running(targets[0])
    if process:
        process.exit_reason = "EvictionByEvictionAPI"
        process.terminate()


def _disconnect(world: World, _targets: tuple[str, ...], for_s: float) -> None:
    """The platform of the pods can't be reached: no orders, no changes."""
    if launcher := world.launcher:
        launcher.pods.disconnect()
        world.loop.later(for_s, launcher.pods.reconnect)


def _repeat(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """All changes of all pods of a name are reported once more."""
    if launcher := world.launcher:
        launcher.pods.repeat(PodName(targets[0]))


def _cut(world: World, targets: tuple[str, ...], for_s: float) -> None:
    one, other = targets
    world.network.cut(one, other)
    world.loop.later(for_s, world.network.heal, one, other)


def _hang_up(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The connection between a worker and a ps breaks; what is on its way arrives or not."""
    worker, ps = targets
    world.reset_connections(worker, ps)


def _restart(world: World, targets: tuple[str, ...], for_s: float) -> None:
    if targets != (BROKER,):
        raise ValueError(f"only the broker is restarted, not {targets}")
    world.broker.stop()
    world.loop.later(for_s, world.broker.start)


def _outage(world: World, _targets: tuple[str, ...], for_s: float) -> None:
    world.store.away += 1

    def back() -> None:
        world.store.away -= 1

    world.loop.later(for_s, back)


def _resume(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """Everything but broker and store is lost; a user types ``elasticdl resume`` a second later."""
    world.lose_everything()
    world.loop.later(1.0, world.start_launcher, True, int(targets[0]) if targets else 0)


def _scale(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """A user types ``elasticdl scale --ps``."""
    world.scale(int(targets[0]))


def _lose_log(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """Everything is lost, with the log or with what was written to it last; resumed a second later."""
    world.lose_everything()
    world.lose_log(targets == ("whole",))
    world.loop.later(1.0, world.start_launcher, True)


def _delay(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The next request of a process to the broker takes seconds, whatever becomes of the process."""
    world.network.delayed.add(targets[0])


def _drift(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The clock of a process' machine runs faster or slower from now on."""
    name, rate = targets
    world.clock_of(name).set_rate(float(rate))


def _jump(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """The wall clock of a process' machine is set forward or back."""
    name, seconds = targets
    world.clock_of(name).jump(float(seconds))


def _garble(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """A broken peer pushes the next batch of some task, its last rows NaN: nothing of it may be applied."""
    process = world.running(targets[0])
    if process and process.instance.alive and not process.instance.frozen:
        world.garble(process)


def _garbage(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """A client publishes unreadable bytes on a subject of the bus."""
    world.garbage(targets[0])


def _damage(world: World, targets: tuple[str, ...], _for_s: float) -> None:
    """Storage does not keep what it was given: the newest manifest of a ps, or anything of its chain."""
    ps, part = targets
    world.damage(ps, part)


Action = Callable[["World", tuple[str, ...], float], None]
ACTIONS: dict[str, Action] = {
    "kill": _kill,
    "crash": _crash,
    "stop": _stop,
    "freeze": _freeze,
    "hang": _hang,
    "zombie": _zombie,
    "lose_node": _lose_node,
    "lose_room": _lose_room,
    "evict": _evict,
    "disconnect": _disconnect,
    "repeat": _repeat,
    "cut": _cut,
    "hang_up": _hang_up,
    "restart": _restart,
    "outage": _outage,
    "resume": _resume,
    "scale": _scale,
    "garble": _garble,
    "garbage": _garbage,
    "lose_log": _lose_log,
    "damage": _damage,
    "delay": _delay,
    "drift": _drift,
    "jump": _jump,
}
