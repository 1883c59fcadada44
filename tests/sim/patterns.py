"""The ways in which things go wrong, each with a weight.

Single faults at random moments, faults set off where a protocol is most vulnerable, and the combinations that need
several at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.sim.faults import Fault
from tests.sim.job import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a pattern may choose from."""

    random: Random
    shape: Shape
    horizon_s: float

    def moment(self) -> float:
        """Some time."""
        return round(self.random.uniform(0.0, self.horizon_s * 0.9), 3)

    def ps(self) -> str:
        """Some ps."""
        return f"ps-{self.random.randrange(self.shape.ps)}"

    def worker(self) -> str:
        """Some worker."""
        return f"worker-{self.random.randrange(self.shape.workers)}"

    def any_process(self) -> str:
        """Some process."""
        return self.random.choice([self.ps(), self.worker(), "master"])

    def count(self, most: int) -> int:
        """One of the first so many."""
        return 1 + self.random.randrange(most)

    def while_s(self, most_s: float) -> float:
        """Some duration, short ones more often."""
        return round(0.05 + most_s * self.random.random() ** 2, 3)

    def batches(self) -> int:
        """About how many batches one worker computes."""
        shape = self.shape
        return max(2, shape.tasks * shape.batches * shape.epochs // shape.workers)


def _kill(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="kill", targets=(around.any_process(),))]


def _kill_several(around: Around) -> list[Fault]:
    names = {around.ps(), "master", around.worker(), around.ps()}
    names = {name for name in sorted(names) if around.random.random() < 0.7}
    at_s = around.moment()
    return [
        Fault(at_s=round(at_s + around.random.random() * 0.1, 3), action="kill", targets=(name,))
        for name in sorted(names)
    ]


def _crash(around: Around) -> list[Fault]:
    name = around.random.choice([around.ps(), around.worker()])
    return [Fault(at_s=around.moment(), action="crash", targets=(name,))]


def _stop_worker(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="stop", targets=(around.worker(),))]


def _freeze(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="freeze", targets=(around.any_process(),), for_s=around.while_s(15.0))]


def _hang(around: Around) -> list[Fault]:
    """The last worker hangs in the user's code."""
    return [Fault(at_s=around.moment(), action="hang", targets=(f"worker-{around.shape.workers - 1}",))]


def _zombie(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="zombie", targets=(around.any_process(),), for_s=around.while_s(8.0))]


def _frozen_zombie(around: Around) -> list[Fault]:
    """Frozen, replaced, thawed beside its successor."""
    name, at_s, for_s = around.any_process(), around.moment(), around.while_s(5.0)
    return [
        Fault(at_s=at_s, action="freeze", targets=(name,), for_s=for_s),
        Fault(at_s=round(at_s + 0.02, 3), action="zombie", targets=(name,), for_s=for_s + around.while_s(6.0)),
    ]


def _cut_broker(around: Around) -> list[Fault]:
    name = around.random.choice([around.any_process(), around.any_process(), "launcher"])
    return [Fault(at_s=around.moment(), action="cut", targets=(name, "broker"), for_s=around.while_s(12.0))]


def _cut_wire(around: Around) -> list[Fault]:
    targets = (around.worker(), around.ps())
    return [Fault(at_s=around.moment(), action="cut", targets=targets, for_s=around.while_s(6.0))]


def _hang_up(around: Around) -> list[Fault]:
    targets = (around.worker(), around.ps())
    if around.random.random() < 0.5:
        return [Fault(at_s=around.moment(), action="hang_up", targets=targets)]
    probe = (targets[1], "push", around.count(around.batches() * 2))
    return [Fault(probe=probe, action="hang_up", targets=targets)]


def _restart_broker(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="restart", targets=("broker",), for_s=around.while_s(4.0))]


def _outage(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="outage", targets=("store",), for_s=around.while_s(4.0))]


def _garble(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="garble", targets=(around.ps(),))]


def _resume(around: Around) -> list[Fault]:
    return [Fault(at_s=around.moment(), action="resume")]


def _lose_log(around: Around) -> list[Fault]:
    targets = (around.random.choice(["whole", "end"]),)
    if around.random.random() < 0.5:
        return [Fault(at_s=around.moment(), action="lose_log", targets=targets)]
    what = around.random.choice(["registered", "SnapshotTaken.stored", "PsStarted.stored", "push"])
    return [Fault(probe=(around.ps(), what, around.count(6)), action="lose_log", targets=targets)]


def _at_probe(around: Around) -> list[Fault]:
    """A process dies, freezes or is replaced exactly between two steps of its protocol."""
    choice = around.random
    name, what, most = choice.choice(
        [
            (around.ps(), "push", around.batches() * around.shape.workers),
            (around.ps(), "push", around.batches() * around.shape.workers),
            (around.ps(), "claimed", 2),
            (around.ps(), "restored", 2),
            (around.ps(), "tidies", 2),
            (around.ps(), "object", 12),
            (around.ps(), "registered", 4),
            (around.ps(), "register.stored", 5),
            (around.ps(), "PsStarted.stored", 2),
            (around.ps(), "PsStarted.acked", 2),
            (around.ps(), "SnapshotTaken.stored", 4),
            (around.ps(), "ModelInitialised.stored", 1),
            (around.worker(), "pushed", around.batches()),
            (around.worker(), "TaskTaken.stored", around.batches()),
            (around.worker(), "TaskFinished.stored", around.batches()),
            (around.worker(), "TaskFinished.acked", around.batches()),
            (around.worker(), "TasksTaken.stored", 2),
            (around.worker(), "TasksFinished.stored", 4),
            (around.worker(), "TasksFinished.acked", 4),
            (around.worker(), "ack.stored", around.batches()),
            ("master", "Decided.stored", 12),
            ("master", "Decided.acked", 12),
            ("master", "CommandsRan.stored", 12),
            ("master", "publish.stored", around.shape.tasks * around.shape.epochs),
            ("master", "TermStarted.stored", 2),
        ]
    )
    probe = (name, what, around.count(most))
    action = choice.choice(["kill", "kill", "freeze", "zombie"])
    for_s = 0.0 if action == "kill" else around.while_s(6.0)
    return [Fault(probe=probe, action=action, targets=(name,), for_s=for_s)]


def _ps_started_before_finished(around: Around) -> list[Fault]:
    """A worker hangs between its task's last push and the event; a ps is restarted meanwhile."""
    worker = around.worker()
    probe = (worker, "pushed", around.count(around.batches()))
    reported = around.random.choice(["TaskFinished.stored", "TasksFinished.stored"])
    last = (worker, reported, around.count(around.batches() if reported == "TaskFinished.stored" else 4))
    return [
        Fault(probe=probe, action="freeze", targets=(worker,), for_s=around.while_s(3.0)),
        Fault(
            probe=around.random.choice([(*probe[:2], probe[2] + 1), last, (worker, "pushed", probe[2] - 1 or 1)]),
            action="kill",
            targets=(around.ps(),),
        ),
        Fault(at_s=around.moment(), action="cut", targets=(worker, "broker"), for_s=around.while_s(3.0)),
    ]


def _only_old_ps(around: Around) -> list[Fault]:
    """A ps is replaced while it lives; a worker that does not hear of it goes on with the old one."""
    ps, worker, at_s = around.ps(), around.worker(), around.moment()
    for_s = around.while_s(6.0)
    return [
        Fault(at_s=at_s, action="cut", targets=(worker, "broker"), for_s=for_s),
        Fault(at_s=round(at_s + 0.01, 3), action="zombie", targets=(ps,), for_s=for_s),
    ]


def _deaf_ps(around: Around) -> list[Fault]:
    """A ps without a broker is replaced; both serve until the old one hears of it."""
    ps, at_s, for_s = around.ps(), around.moment(), around.while_s(6.0)
    return [
        Fault(at_s=at_s, action="cut", targets=(ps, "broker"), for_s=for_s),
        Fault(at_s=round(at_s + 0.01, 3), action="zombie", targets=(ps,), for_s=for_s + around.while_s(4.0)),
    ]


def _late_tidier(around: Around) -> list[Fault]:
    """A restored ps hangs before it tidies up, is replaced, and goes on without hearing of it."""
    ps, for_s = around.ps(), round(around.random.uniform(0.6, 2.5), 3)
    when, again = (ps, "tidies", 1), around.count(3)
    return [
        Fault(probe=(ps, "registered", around.count(3)), action="kill", targets=(ps,)),
        Fault(probe=when, action="cut", targets=(ps, "broker"), for_s=for_s + 0.5),
        Fault(probe=when, action="freeze", targets=(ps,), for_s=for_s),
        Fault(probe=when, action="zombie", targets=(ps,), for_s=for_s + 0.3),
        Fault(probe=(ps, "SnapshotTaken.stored", 4 + again), action="kill", targets=(ps,)),
    ]


def _stale_master(around: Around) -> list[Fault]:
    """A master hangs in the middle of something, is replaced, and goes on."""
    what = around.random.choice(["Decided.stored", "Decided.acked", "publish.stored", "CommandsRan.stored"])
    probe, for_s = ("master", what, around.count(10)), around.while_s(4.0)
    at_s = around.moment()
    if around.random.random() < 0.5:
        return [
            Fault(probe=probe, action="freeze", targets=("master",), for_s=for_s),
            Fault(at_s=at_s, action="zombie", targets=("master",), for_s=for_s + 3.0),
        ]
    return [Fault(probe=probe, action="zombie", targets=("master",), for_s=for_s)]


def _orders_of_a_stale_master(around: Around) -> list[Fault]:
    """A master hangs when its decision is acknowledged, and gives the orders when its successor has given them."""
    when = ("master", "Decided.acked", around.count(3))
    hangs_s = round(around.random.uniform(0.8, 2.5), 3)
    return [
        Fault(probe=when, action="freeze", targets=("master",), for_s=hangs_s),
        Fault(probe=when, action="zombie", targets=("master",), for_s=hangs_s + 1.0),
    ]


def _last_words(around: Around) -> list[Fault]:
    """A launcher dies with a word on its way, which arrives when its successor has begun, or before."""
    what, most = around.random.choice([("starts", 1), ("PodStarted.acked", around.shape.ps + around.shape.workers)])
    end = around.random.choice(["resume", "resume", "lose_log"])
    return [
        Fault(probe=("launcher", what, around.count(most)), action="delay", targets=("launcher",)),
        Fault(probe=("launcher", "delayed", 1), action=end, targets=("whole",) if end == "lose_log" else ()),
    ]


def _damage(around: Around) -> list[Fault]:
    """A snapshot is damaged, and its ps dies before or after it has taken the next one."""
    ps, part = around.ps(), around.random.choice(["newest", "any", "any"])
    probe = (ps, "registered", around.count(6))
    damage = Fault(probe=probe, action="damage", targets=(ps, part))
    if around.random.random() < 0.3:
        return [damage, Fault(at_s=around.moment(), action="resume")]
    last = (ps, around.random.choice(["SnapshotTaken.stored", "object", "push"]), probe[2] + around.count(6))
    death = Fault(probe=probe if around.random.random() < 0.4 else last, action="kill", targets=(ps,))
    again = Fault(probe=(ps, "restored", 1), action="kill", targets=(ps,))
    return [damage, death, *([again] if around.random.random() < 0.3 else [])]


def _damage_at_the_audit(around: Around) -> list[Fault]:
    """What a ps has just registered can't be read, the final snapshot too: it may be anyone of them."""
    ps = around.ps()
    first = around.count(6)
    count = around.count(2)
    return [
        Fault(probe=(ps, "registered", first + number), action="damage", targets=(ps, "newest"))
        for number in range(count)
    ]


PATTERNS: tuple[tuple[int, Callable[[Around], list[Fault]]], ...] = (
    (6, _kill),
    (3, _kill_several),
    (2, _crash),
    (2, _stop_worker),
    (4, _freeze),
    (1, _hang),
    (3, _zombie),
    (3, _frozen_zombie),
    (3, _cut_broker),
    (2, _cut_wire),
    (3, _hang_up),
    (2, _restart_broker),
    (1, _outage),
    (1, _resume),
    (1, _garble),
    (2, _lose_log),
    (3, _damage),
    (2, _damage_at_the_audit),
    (9, _at_probe),
    (2, _ps_started_before_finished),
    (2, _only_old_ps),
    (2, _deaf_ps),
    (2, _late_tidier),
    (3, _stale_master),
    (1, _orders_of_a_stale_master),
    (1, _last_words),
)


def drawn(around: Around, count: int) -> tuple[Fault, ...]:
    """The faults of so many patterns."""
    patterns = around.random.choices([p for _, p in PATTERNS], [w for w, _ in PATTERNS], k=count)
    return tuple(fault for pattern in patterns for fault in pattern(around))
