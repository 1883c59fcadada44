"""Random schedules: one integer decides the job's shape, the network's weather and everything that goes wrong."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.sim.dense_updates import OPTIMIZERS, SGD
from tests.sim.faults import Fault
from tests.sim.job import Shape
from tests.sim.move_schedule import NO_ROOM, move_schedule, schedule_of
from tests.sim.network import Weather
from tests.sim.patterns import Around, drawn
from tests.sim.world import Schedule

from elasticdl.shared.names import Service

START_S = 1.2
"""About when training begins."""

DONOR = (("SnapshotTaken.stored", 4), ("register.stored", 5), ("frozen", 1), ("adopted", 2), ("registered", 5))
RECIPIENT = (
    ("loaded", 4),
    ("held", 2),
    ("GroupHeld.stored", 2),
    ("GroupHeld.acked", 2),
    ("adopted", 1),
    ("claimed", 1),
)
MASTER = (("Decided.stored", 20), ("Decided.acked", 20), ("CommandsRan.stored", 20), ("register.stored", 2))
"""Probes that lie between the steps of a move, and how often they may be passed before something goes wrong."""


MOVES, TROUBLED, SCALES = 0.25, 0.35, 0.45
"""Shares of all schedules, added up: about moves and nothing else; about moves, and something else goes wrong besides;
about something else, and the job is scaled besides."""


def _scaling(random: Random, around: Around) -> tuple[Fault, ...]:
    """The number of ps changes, often with a death in the middle of a move."""
    faults: list[Fault] = []
    present = around.shape.ps
    for _ in range(random.choice([1, 1, 2, 3])):
        wanted = random.choice([one for one in (1, 2, 3, 4) if one != present])
        at_s = round(random.uniform(0.0, around.horizon_s * 0.9), 3)
        action = "resume" if random.random() < 0.2 else "scale"
        faults.append(Fault(at_s=at_s, action=action, targets=(str(wanted),)))
        for _ in range(random.choice([0, 1, 1, 2])):
            faults.append(_during_a_move(random, min(present, wanted), max(present, wanted), grows=wanted > present))
        present = wanted
    return tuple(faults)


def _during_a_move(random: Random, fewer: int, more: int, *, grows: bool) -> Fault:
    """A process that takes part in a move dies, freezes or is replaced at a step of it."""
    old, new = f"ps-{random.randrange(fewer)}", f"ps-{random.randrange(fewer, more)}"
    name, probes = random.choice(
        [(old if grows else new, DONOR), (new if grows else old, RECIPIENT), ("master", MASTER)]
    )
    what, most = random.choice(probes)
    action = random.choice(["kill", "kill", "freeze", "zombie"])
    for_s = 0.0 if action == "kill" else round(0.05 + 6.0 * random.random() ** 2, 3)
    return Fault(probe=(name, what, 1 + random.randrange(most)), action=action, targets=(name,), for_s=for_s)


DRIFTING, JUMPING = 0.35, 0.2
"""Shares of all schedules in which clocks drift, and in which wall clocks jump."""
JUMP_S_MAX = 20.0


def _clock_faults(seed: int, shape: Shape, horizon_s: float) -> tuple[Fault, ...]:
    """What is wrong with the clocks; drawn apart, so that everything else of a schedule stays as it is."""
    random = Random(seed * 7919 + 5)
    names = ["broker", "launcher", "master"]
    names += [f"ps-{number}" for number in range(shape.ps)] + [f"worker-{number}" for number in range(shape.workers)]
    faults = []
    if random.random() < DRIFTING:
        faults += [
            Fault(action="drift", targets=(name, f"{random.uniform(0.99, 1.01):.4f}"))
            for name in random.sample(names, random.randint(1, len(names)))
        ]
    if random.random() < JUMPING:
        faults += [
            Fault(
                at_s=round(random.uniform(0.0, horizon_s), 3),
                action="jump",
                targets=(random.choice(names), f"{random.uniform(-JUMP_S_MAX, JUMP_S_MAX):.3f}"),
            )
            for _ in range(random.randint(1, 2))
        ]
    return tuple(faults)


POD_FAULTS = 0.15
"""Share of all schedules in which the platform of the pods loses nodes, can't be reached, or repeats itself."""


def _pod_faults(seed: int, shape: Shape, horizon_s: float) -> tuple[Fault, ...]:
    """What is wrong with the pods; drawn apart, like the clocks."""
    random = Random(seed * 7919 + 24)
    if random.random() >= POD_FAULTS:
        return ()
    faults = []
    for _ in range(random.randint(1, 3)):
        name = random.choice([f"ps-{random.randrange(shape.ps)}", f"worker-{random.randrange(shape.workers)}"])
        at_s = round(random.uniform(0.0, horizon_s * 0.9), 3)
        match random.randrange(3):
            case 0:
                faults.append(Fault(at_s=at_s, action="lose_node", targets=(name,)))
            case 1:
                for_s = round(0.05 + 6.0 * random.random() ** 2, 3)
                faults.append(Fault(at_s=at_s, action="disconnect", for_s=for_s))
            case _:
                again_s = round(at_s + 0.3 + random.random(), 3)
                faults.append(Fault(at_s=at_s, action="kill", targets=(name,)))
                faults.append(Fault(at_s=again_s, action="repeat", targets=(name,)))
    return tuple(faults)


SYNCHRONOUS = 0.2
"""Share of all schedules in which training is synchronous."""


def _synchronous(seed: int, shape: Shape) -> Shape:
    """Whether the job trains synchronously; drawn apart, like the clocks."""
    random = Random(seed * 7919 + 8)
    if random.random() >= SYNCHRONOUS:
        return shape
    return replace(shape, synchronous=True, grads_to_wait=random.choice([1, 2, 2, 3]))


BOUNDED = 0.15
"""Share of all schedules in which training is asynchronous with a given bound of the staleness."""
BY_WORKERS = 0.5
"""Share of the other asynchronous schedules in which the number of workers bounds the staleness."""


def _bounded(seed: int, shape: Shape) -> Shape:
    """Whether the staleness is bounded; drawn apart, too."""
    random = Random(seed * 7919 + 9)
    if random.random() >= BOUNDED / (1.0 - SYNCHRONOUS) or shape.synchronous:
        return replace(shape, staleness_by_workers=not shape.synchronous and random.random() < BY_WORKERS)
    return replace(shape, max_staleness=random.choice([0, 0, 1, 1, 2, 3, 4]))


CATCHING_UP = 0.3
"""Share of all schedules in which rows catch up on updates in which they had no gradient."""


def _catching_up(seed: int, shape: Shape, share: float) -> Shape:
    """Which optimizer the job has; drawn apart, too.

    Without rounds, nothing says which batches an update of several is of. So the oracle could not order them.
    """
    random = Random(seed * 7919 + 10)
    if random.random() >= share or (shape.grads_to_wait > 1 and not shape.synchronous):
        return shape
    return replace(
        shape,
        optimizer=random.choice([name for name in OPTIMIZERS if name != SGD]),
        counted=random.random() < 0.5,
        expire_after=random.choice([0, 4, 10]),
    )


def random_schedule(seed: int) -> Schedule:
    """The schedule of a seed."""
    schedule = _with_epochs(_schedule(seed))
    shape = _bounded(seed, _synchronous(seed, schedule.shape))
    schedule = replace(schedule, shape=_catching_up(seed, shape, CATCHING_UP))
    clocks = _clock_faults(seed, schedule.shape, schedule.horizon_s)
    pods = _pod_faults(seed, schedule.shape, schedule.horizon_s)
    garbage = _garbage_faults(seed, schedule.shape, schedule.horizon_s)
    return replace(schedule, faults=clocks + _with_one_suspect(schedule.faults) + pods + garbage)


def _with_one_suspect(faults: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """At most one worker crashes, or hangs in the user's code: two with the same batch end the job, and rightly so."""
    suspects = [
        each for each in faults if each.action in ("crash", "hang") and each.targets[0].startswith(Service.WORKER.value)
    ]
    return tuple(each for each in faults if each not in suspects[1:])


GARBAGE = 0.1
"""Share of all schedules in which unreadable messages are published. They change nothing else of a seed."""


def _garbage_faults(seed: int, shape: Shape, horizon_s: float) -> tuple[Fault, ...]:
    random = Random(seed * 7919 + 61)
    if random.random() >= GARBAGE:
        return ()
    around = Around(random=random, shape=shape, horizon_s=horizon_s)
    subjects = ("task", "heartbeat", "launcher", around.any_process(), around.any_process())
    return tuple(
        Fault(at_s=around.moment(), action="garbage", targets=(random.choice(subjects),))
        for _ in range(random.randint(1, 4))
    )


EVALUATED_EPOCHS = 0.12
"""Share of all schedules in which the end of each of several epochs is evaluated."""


def _with_epochs(schedule: Schedule) -> Schedule:
    """Some schedules evaluate the ends of epochs; drawn apart, so that all others stay as they are."""
    random = Random(schedule.seed * 7919 + 6)
    if random.random() >= EVALUATED_EPOCHS:
        return schedule
    shape = replace(
        schedule.shape,
        epochs=random.choice([2, 3, 4]),
        tasks=random.randint(2, 4),
        batches=random.randint(1, 3),
        evaluate=True,
        evaluate_epochs=True,
        patience=random.choice([0, 1, 1, 2]),
    )
    return replace(schedule, shape=shape)


FULL = 0.1
"""Share of the schedules of jobs on a cluster in which a ps finds no room any more."""
EVICTIONS = 0.5
"""Share of the schedules of jobs on a cluster in which pods are evicted."""


def catching_up_schedule(seed: int) -> Schedule:
    """The schedule of a seed, in which rows catch up."""
    schedule = random_schedule(seed)
    shape = schedule.shape if schedule.shape.synchronous else replace(schedule.shape, grads_to_wait=1)
    return replace(schedule, shape=_catching_up(seed, shape, 1.0))


def cluster_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job on a cluster: its pods are evicted, too, or a ps finds no room any more.

    Every second one shuffles globally.
    """
    is_full = Random(seed * 7919 + 37).random() < FULL
    schedule, random = schedule_of(NO_ROOM, seed) if is_full else random_schedule(seed), Random(seed * 7919 + 31)
    schedule = replace(schedule, shape=replace(schedule.shape, global_shuffle=seed % 2 == 1))
    if random.random() >= EVICTIONS:
        return schedule
    around = Around(random=random, shape=schedule.shape, horizon_s=schedule.horizon_s)
    evictions = (
        Fault(at_s=around.moment(), action="evict", targets=(random.choice([around.ps(), around.worker()]),))
        for _ in range(random.randint(1, 3))
    )
    return replace(schedule, faults=(*schedule.faults, *evictions))


def spares_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job with spares: workers die, waiting spares, and those that were just promoted."""
    schedule, random = cluster_schedule(seed), Random(seed * 7919 + 71)
    spares, workers = random.choice([1, 1, 2]), random.choice([1, 2, 2, 3])
    shape = replace(
        schedule.shape,
        spares=spares,
        workers=workers,
        tasks=random.randint(4, 8),
        batches=2,
        epochs=1,
        compute_s=random.choice([0.5, 1.0]) * workers,
    )
    horizon_s = round(2 * START_S + shape.tasks * shape.batches * shape.compute_s / workers, 3)
    names = [f"worker-{number}" for number in range(workers + spares)]
    faults = [
        Fault(at_s=round(random.uniform(2 * START_S, horizon_s), 3), action="kill", targets=(random.choice(names),))
        for _ in range(random.randint(1, 4))
    ]
    for _ in range(random.choice([0, 1, 1, 2])):
        name = random.choice(names)
        what, most, targets = random.choice(
            [
                ("ModelBuilt.stored", 2, (name,)),
                ("begins", 3, (name,)),
                ("begins", 3, ("master",)),
                ("ModelBuilt.acked", 2, ("master",)),
                ("ModelBuilt.acked", 2, (name, "master")),
            ]
        )
        action = "kill" if len(targets) > 1 else random.choice(["kill", "kill", "freeze"])
        for_s = 0.0 if action == "kill" else round(0.05 + 6.0 * random.random() ** 2, 3)
        faults.append(
            Fault(probe=(name, what, 1 + random.randrange(most)), action=action, targets=targets, for_s=for_s)
        )
    return replace(schedule, shape=shape, horizon_s=horizon_s, faults=(*schedule.faults, *faults))


def callback_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job with callbacks; with every other seed, the hooks save the evaluated model."""
    schedule = random_schedule(seed)
    shape = replace(schedule.shape, epochs=3, patience=0, callback_epochs=1 + seed % 4)
    if seed % 2:
        shape = replace(shape, evaluate=True, evaluate_epochs=True)
    return replace(schedule, shape=shape)


def evaluation_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job that evaluates a model instead of training one."""
    schedule = cluster_schedule(seed)
    shape = schedule.shape
    evaluates = Shape(
        ps=shape.ps, workers=shape.workers, tasks=shape.tasks, batches=shape.batches, compute_s=2 * shape.compute_s
    )
    return replace(schedule, shape=replace(evaluates, evaluates=True, shared_address=shape.shared_address))


def metrics_schedule(seed: int) -> Schedule:
    """The schedule of a seed, with training metrics: with several epochs, many states, and in some nothing is wrong."""
    schedule, random = random_schedule(seed), Random(seed * 7919 + 43)
    shape = replace(
        schedule.shape, metrics=True, epochs=random.choice([2, 3]), evaluate=random.random() < 0.5, patience=0
    )
    if random.random() < 0.3:
        weather = Weather(latency_s=schedule.weather.latency_s)
        return replace(schedule, shape=shape, faults=(), weather=weather)
    return replace(schedule, shape=shape)


def evaluation_sums_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job that evaluates many tasks with metric states that are stored beside the log."""
    schedule = evaluation_schedule(seed)
    tasks = Random(seed * 7919 + 47).randint(4, 40)
    return replace(schedule, shape=replace(schedule.shape, metrics=True, tasks=tasks, batches=1))


def prediction_schedule(seed: int) -> Schedule:
    """The schedule of a seed, for a job that predicts: workers also fail between the files that they publish."""
    schedule, random = evaluation_schedule(seed), Random(seed * 7919 + 41)
    faults = (
        Fault(
            probe=(f"worker-{random.randrange(schedule.shape.workers)}", what, random.randint(1, 4)),
            action=action,
            targets=(f"worker-{random.randrange(schedule.shape.workers)}",),
            for_s=0.0 if action == "kill" else round(0.05 + 6.0 * random.random() ** 2, 3),
        )
        for what, action in ((random.choice(("predicted", "published")), random.choice(("kill", "kill", "freeze"))),)
    )
    shape = replace(schedule.shape, evaluates=False, predicts=True)
    return replace(schedule, shape=shape, faults=(*schedule.faults, *faults))


def _schedule(seed: int) -> Schedule:
    """A schedule with good clocks.

    What has to do with moves is drawn apart from everything else, so that the other schedules stay what they are.
    """
    scaling = Random(seed * 7919 + 2)
    kind = scaling.random()
    if kind <= TROUBLED:
        schedule = move_schedule(seed)
        return schedule if kind <= MOVES else _troubled(schedule, scaling)
    random = Random(seed * 7919 + 1)
    shape = Shape(
        ps=random.choice([1, 1, 2, 2, 3]),
        workers=random.choice([1, 2, 2, 3]),
        tasks=random.randint(2, 7),
        batches=random.randint(1, 4),
        epochs=random.choice([1, 1, 2]),
        grads_to_wait=random.choice([1, 1, 1, 1, 2]),
        snapshot_s=random.choice([0.3, 0.7, 1.5]),
        compute_s=random.choice([0.02, 0.05, 0.15]),
        evaluate=random.random() < 0.2,
        evaluate_s=Random(seed * 7919 + 4).choice([0.0, 0.1, 0.5]),
        export=random.random() < 0.2,
        empty_every=random.choice([0, 0, 0, 4]),
        shared_address=random.random() < 0.4,
        chain_max=random.choice([1, 2, 4]),
    )
    bad = random.random()
    weather = Weather(
        latency_s=random.choice([0.0005, 0.002, 0.01]),
        lost=0.02 * random.random() if bad < 0.3 else 0.0,
        unanswered=0.04 * random.random() if bad < 0.5 else 0.0,
        late=0.02 * random.random() if bad < 0.2 else 0.0,
    )
    batches = shape.tasks * shape.batches * shape.epochs
    horizon_s = round(START_S + batches * shape.compute_s / shape.workers * random.uniform(0.8, 2.0) + 1.0, 3)
    around = Around(random=random, shape=shape, horizon_s=horizon_s)
    faults = drawn(around, random.randint(1, 6))
    if kind <= SCALES:
        faults += _scaling(scaling, around)
    return Schedule(seed=seed, shape=shape, weather=weather, faults=faults, horizon_s=horizon_s)


def _troubled(schedule: Schedule, random: Random) -> Schedule:
    """A schedule about a move, in which something else goes wrong, too."""
    around = Around(random=random, shape=schedule.shape, horizon_s=schedule.horizon_s)
    return replace(schedule, faults=schedule.faults + drawn(around, random.randint(1, 2)))
