"""A simulated cluster whose nodes, pods and controllers fail at random, around the scheduling core."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from elasticdl.controller.core import Cluster, Drain, Job, Phase, Planner, Policy, Start, Targets, decide
from elasticdl.controller.core.resources import has_room, plus
from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.sim.scenario import Scenario, Service
from elasticdl.controller.sim.world import SimPod, World

REACTION_S = 0.5
TICK_S = 20.0
POLICY = Policy()
MAY_GROW = Policy.may_grow
"""As it is without mutations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens at a second; ``target`` chooses among what is there then."""

    second: float
    action: str
    target: float = 0.0
    size: float = 0.0


class Fleet:
    """A cluster with faults and the controller's loop around the core.

    Args:
        compares: whether each decision is taken from scratch as well, and must be the same.
        planner: who decides.

    Attributes:
        problems: rules that were broken.
        story: what happened, with its second.
    """

    def __init__(
        self,
        scenario: Scenario,
        faults: tuple[Fault, ...],
        seed: int,
        *,
        compares: bool = False,
        planner: Planner | RecordingPlanner | None = None,
    ) -> None:
        self._planner = planner or Planner(POLICY)
        self._compares = compares
        self.world = _World(scenario, seed)
        self.random = Random(seed + 1)
        self.problems: list[str] = []
        self.story: list[str] = []
        self.refused: dict[str, float] = {}
        self.suspended: set[str] = set()
        self.broken: set[str] = set()
        """Jobs whose image can't be pulled."""
        self.edited: dict[str, tuple[int, int]] = {}
        """Limits of workers that a user has changed."""
        self.most: dict[str, int] = {}
        """The highest of them."""
        self.lost: list[tuple[str, dict[str, int], Mapping[str, str]]] = []
        self.queues = scenario.queues
        self.refusals = 0
        """Orders that are refused next."""
        self.cut = 0
        """Decisions of which only a part is carried out next, because the controller dies."""
        self.lag = 0
        """Turns for which the controller sees what was there before, and knows what it has ordered since."""
        self._stale: Cluster | None = None
        self._since: list[Start | Drain] = []
        self.decisions = 0
        self.last_orders_s = 0.0
        self.clock_s = 0.0
        self.last_targets: Targets | None = None
        self.stuck_s: dict[str, float] = {}
        """Since when pods hold room and can't start."""
        for fault in faults:
            self.world.at(fault.second, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
        self.world.at(TICK_S, self._tick)

    def _tick(self) -> None:
        """Look again although nothing has changed: pauses end."""
        self.world.changed = True
        self.world.after(TICK_S, self._tick)

    # The loop.

    def run(self, end_s: float, check: Callable[[Fleet], list[str]]) -> None:
        """Run until a second; ``check`` is asked after each event what is wrong."""
        world, planned = self.world, False

        def decision() -> None:
            nonlocal planned
            planned = world.changed = False
            self._decide()

        while world.events and world.events[0][0] < end_s and not self.problems:
            second = world.events[0][0]
            world.advance(second)
            while world.events and world.events[0][0] == second:
                heapq.heappop(world.events)[2]()
            self._break_images()
            world.schedule()
            self.problems += check(self)
            if world.changed and not planned:
                planned = True
                world.after(REACTION_S, decision)
        world.advance(end_s)

    def jobs(self) -> list[Job]:
        """The jobs as the core sees them."""
        found = []
        for job in self.world.core_jobs():
            least, most = self.edited.get(job.name, (job.worker.min, job.worker.max))
            found.append(
                replace(
                    job,
                    worker=replace(job.worker, min=least, max=most),
                    suspended=job.name in self.suspended,
                    refused_s=self.refused.get(job.name),
                )
            )
        return found

    def jobs_by_name(self) -> dict[str, Job]:
        """The same by name."""
        return {job.name: job for job in self.jobs()}

    def cluster(self) -> Cluster:
        """What is there."""
        return replace(self.world.cluster(), queues=self.queues)

    def _decide(self) -> None:
        self.decisions += 1
        seen = self.cluster()
        if self.lag and self._stale is not None:
            self.lag -= 1
            seen = replace(self._stale, ordered=(*self._stale.ordered, *self._since), queues=self.queues)
            self.world.changed = True
        else:
            self._stale, self._since = seen, []
        jobs, now_s = self.jobs(), self.world.now_s + self.clock_s
        targets = self.last_targets = self._planner.decide(self._planner.view.changes_to(seen, jobs), now_s)
        if self._compares and targets != (fresh := decide(seen, jobs, now_s, POLICY)):
            self.problems.append(f"a plan that was kept decides otherwise: {targets} instead of {fresh}")
        orders: list[Start | Drain] = []
        for target in targets.jobs:
            orders += [*target.starts, *(Drain(pod=pod, job=target.job) for pod in target.drains)]
        for target in targets.jobs:
            if not target.reason:
                self.problems.append(f"the target of {target.job} has no reason")
            refused_s = self.refused.get(target.job)
            if (
                target.starts
                and refused_s is not None
                and not MAY_GROW(POLICY, self.jobs_by_name()[target.job], self.world.now_s + self.clock_s)
            ):
                self.problems.append(f"{target.job} gets pods so soon after a refusal")
        if self.cut:
            self.cut -= 1
            done = {order.job for order in orders[: self.random.randint(0, len(orders))]}
            orders = [order for order in orders if order.job in done]  # What a job is asked for is one request.
            self.world.changed = True
        for order in orders:
            self._order(order)

    def _order(self, order: Start | Drain) -> None:
        world = self.world
        self.last_orders_s = world.now_s
        if isinstance(order, Drain):
            self._since.append(order)
            world.drain(order.job, order.pod)
            return
        if order.pod in world.pods or order.pod in world.jobs[order.job].ordered:
            self.problems.append(f"{order.pod} is started twice")
            return
        if order.node not in world.nodes:
            self._tell(f"{order.pod} has lost its node before it was created")
            world.changed = True
            return
        if self.refusals:
            self.refusals -= 1
            self.refused[order.job] = world.now_s + self.clock_s
            self._tell(f"{order.pod} is refused")
            return
        self._since.append(order)
        world.order(order)

    # Faults.

    def _tell(self, what: str) -> None:
        self.story.append(f"{self.world.now_s:7.1f}  {what}")

    def _strike(self, fault: Fault) -> None:
        getattr(self, f"_{fault.action}")(fault)
        self.world.changed = True

    def _choose(self, fault: Fault, pods: list[SimPod]) -> SimPod | None:
        return pods[int(fault.target * len(pods))] if pods else None

    def _crash(self, fault: Fault) -> None:
        """A pod of a job ends: its process crashed, or it was evicted."""
        pod = self._choose(fault, [pod for pod in self.world.pods.values() if pod.job and pod.bound])
        if pod is not None:
            self._tell(f"{pod.name} crashes")
            self.world.remove(pod)

    def _lose_node(self, fault: Fault) -> None:
        world, names = self.world, sorted(self.world.nodes)
        if len(names) < 2:
            return
        name = names[int(fault.target * len(names))]
        self._tell(f"{name} vanishes")
        for pod in [pod for pod in world.pods.values() if pod.node == name]:
            world.remove(pod)
            if not pod.job:
                owner = pod.name.rpartition("-")[0]
                world.services[owner] = [each for each in world.services[owner] if each is not pod]
        for job in world.jobs.values():
            for start in [start for start in job.ordered.values() if start.node == name]:
                del job.ordered[start.pod]
        self.lost.append((name, world.nodes.pop(name), world.node_labels.pop(name, {})))
        del world.free[name]
        for service in world.scenario.services:
            world.scale(service, world.wanted[service.name])

    def _return_node(self, _fault: Fault) -> None:
        if self.lost:
            name, amounts, labels = self.lost.pop(0)
            self._tell(f"{name} returns")
            self.world.nodes[name], self.world.node_labels[name] = amounts, labels
            self.world.free[name] = dict(amounts)

    def _refuse(self, fault: Fault) -> None:
        self.refusals += 1 + int(3 * fault.size)

    def _kill_controller(self, fault: Fault) -> None:
        self._tell("the controller dies in the middle of its orders")
        self.cut += 1 + int(2 * fault.size)

    def _stale_view(self, fault: Fault) -> None:
        self._tell("the controller sees old objects")
        self.lag += 1 + int(4 * fault.size)

    def _clock(self, fault: Fault) -> None:
        self.clock_s = 20 * fault.size - 10

    def _suspend(self, fault: Fault) -> None:
        names = sorted(self.world.jobs)
        if names:
            name = names[int(fault.target * len(names))]
            self.suspended ^= {name}
            self._tell(f"{name} is {'suspended' if name in self.suspended else 'continued'}")

    def _edit(self, fault: Fault) -> None:
        names = sorted(self.world.jobs)
        if names:
            name = names[int(fault.target * len(names))]
            least = 1 + int(2 * fault.size)
            self.edited[name] = least, least + int(10 * fault.size)
            self.most[name] = max(self.most.get(name, 0), self.edited[name][1])
            self._tell(f"{name} now has {self.edited[name]} workers")

    def _break_image(self, fault: Fault) -> None:
        names = sorted(self.world.jobs)
        if names:
            name = names[int(fault.target * len(names))]
            self.broken ^= {name}
            self._tell(f"the image of {name} is {'broken' if name in self.broken else 'whole'}")

    def _repair(self, _fault: Fault) -> None:
        """All images are whole from now on, and no order is refused: jobs that can't start try again for ever."""
        self.broken.clear()
        self.refusals = self.cut = self.lag = 0
        for pod in [pod for pod in self.world.pods.values() if pod.phase is Phase.STUCK]:
            self.world.remove(pod)

    def _quota(self, fault: Fault) -> None:
        if self.queues:
            changed = replace(self.queues[0], quota={"cpu": int(60 * fault.size)})
            self.queues = (changed, *self.queues[1:])
            self._tell(f"queue {changed.name} now has {changed.quota}")

    def _break_images(self) -> None:
        """Pods of broken jobs hold their room and never start."""
        for pod in self.world.pods.values():
            if pod.job in self.broken and pod.phase is Phase.STARTING:
                pod.phase = Phase.STUCK
                self.stuck_s[pod.name] = self.world.now_s
                self.refused[pod.job] = self.world.now_s + self.clock_s
                self.world.changed = True


class _World(World):
    """Pods of jobs stand only where they may."""

    def scale(self, service: Service, number: int) -> None:
        """As a ReplicaSet does when pods are gone."""
        self._scale(service, number)

    def free_of(self, node: str) -> dict[str, int]:
        """Room of a node by its pods, computed from scratch."""
        room = dict(self.nodes[node])
        for pod in self.pods.values():
            if pod.node == node and pod.bound:
                room = plus(room, pod.request, -1)
        return room


def has_place(request: Mapping[str, int], rooms: Mapping[str, Mapping[str, int]], may: Callable[[str], bool]) -> str:
    """A node with room; empty: none."""
    return next((name for name, room in sorted(rooms.items()) if may(name) and has_room(request, room)), "")
