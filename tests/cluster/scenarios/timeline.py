"""Which pods hold the CPUs of a cluster, over time."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from threading import Condition, Thread
from typing import Any

from kubernetes import client, watch

OWNER = "app.kubernetes.io/instance"
"""Label that names the job, or the application, of a pod."""
_WATCH_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """A pod at one moment.

    Attributes:
        time_s: seconds since the epoch.
        pod: its name.
        owner: its job or application.
        component: ``worker``, ``ps``, ``master`` or empty.
        is_bound: it holds its CPUs: a node runs it, and it has not ended.
        is_running: its containers run.
        milli_cpus: its request, in thousandths of a CPU.
        is_deleted: it does not exist any more.
        has_ended: its containers have ended and are not started again.
    """

    time_s: float
    pod: str
    owner: str
    component: str
    is_bound: bool
    is_running: bool
    milli_cpus: int
    is_deleted: bool = False
    has_ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The changes of pods, in the order of time."""

    states: Sequence[PodState]

    def bound(self, owner: str) -> list[tuple[float, int]]:
        """(time, milli-CPUs that the pods of an owner hold from then on) at every change."""
        held: dict[str, int] = {}
        steps = []
        for state in self.states:
            if state.owner == owner:
                held[state.pod] = state.milli_cpus if state.is_bound else 0
                steps.append((state.time_s, sum(held.values())))
        return steps

    def mean_bound(self, owners: Iterable[str], start_s: float, end_s: float) -> float:
        """Milli-CPUs that the pods of several owners hold, on average over an interval."""
        return sum(mean(self.bound(owner), start_s, end_s) for owner in owners)

    def running_at(self, owner: str, component: str, time_s: float = inf) -> int:
        """How many pods of a component were running at a time; without one, at the end of the timeline."""
        latest = {}
        for state in self._of(owner, component):
            if state.time_s <= time_s:
                latest[state.pod] = state.is_running
        return sum(latest.values())

    def settled_s(self, owner: str, component: str, after_s: float) -> float:
        """When the number of running pods of a component changed for the last time; ``after_s`` if never after it."""
        latest_s, running = after_s, self.running_at(owner, component, after_s)
        for state in self._of(owner, component):
            if state.time_s > after_s and (now := self.running_at(owner, component, state.time_s)) != running:
                latest_s, running = state.time_s, now
        return latest_s

    def fewest_running(self, owner: str, component: str, start_s: float, end_s: float) -> int:
        """The smallest number of pods of a component that were running at a time of an interval."""
        times = {start_s, *(state.time_s for state in self.states if start_s < state.time_s < end_s)}
        return min(self.running_at(owner, component, time_s) for time_s in times)

    def first_running_s(self, owner: str, component: str, count: int = 1, after_s: float = 0.0) -> float:
        """When ``count`` pods of a component ran at the same time, at or after a time.

        Raises:
            LookupError: they never did.
        """
        running: dict[str, bool] = defaultdict(bool)
        for state in self._of(owner, component):
            running[state.pod] = state.is_running
            if state.time_s >= after_s and sum(running.values()) >= count:
                return state.time_s
        raise LookupError(f"{owner} never had {count} running pods of {component}")

    def job(self, name: str) -> str:
        """The id of the job with this name; empty as long as it has no pod."""
        return next((state.owner for state in self.states if state.owner.startswith(f"{name}-")), "")

    def has_ended(self, owner: str, component: str) -> bool:
        """Whether the containers of a pod of a component have ended."""
        return any(state.has_ended for state in self._of(owner, component))

    def last_end_s(self, owner: str) -> float:
        """When the containers of the last pod of an owner had ended."""
        ends: dict[str, float] = {}
        for state in self.states:
            if state.owner == owner and state.has_ended:
                ends.setdefault(state.pod, state.time_s)
        return max(ends.values())

    def lost_pods(self, owner: str, until_s: float) -> set[str]:
        """The pods of an owner that were deleted before a time."""
        return {
            state.pod for state in self.states if state.owner == owner and state.is_deleted and state.time_s < until_s
        }

    def first_created_s(self, owner: str, component: str) -> float:
        """When the first pod of a component was created."""
        return next(state.time_s for state in self._of(owner, component))

    def first_end_s(self, owner: str, component: str) -> float:
        """When a pod of a component that had run began to terminate, or ended, for the first time."""
        ran: set[str] = set()
        for state in self._of(owner, component):
            if state.is_running:
                ran.add(state.pod)
            elif state.pod in ran:
                return state.time_s
        raise LookupError(f"no pod of {owner} and {component} has ended")

    def _of(self, owner: str, component: str) -> list[PodState]:
        return [state for state in self.states if state.owner == owner and state.component == component]


def mean(steps: Sequence[tuple[float, int]], start_s: float, end_s: float) -> float:
    """The mean over an interval of a quantity that is 0 before its first step."""
    area, value, since_s = 0.0, 0, start_s
    for time_s, new in steps:
        until_s = min(max(time_s, start_s), end_s)
        area += value * (until_s - since_s)
        value, since_s = new, until_s
    return (area + value * (end_s - since_s)) / (end_s - start_s)


def milli_cpus(requests: Iterable[str]) -> int:
    """The sum of CPU quantities of Kubernetes, such as ``80m`` and ``2``."""
    return sum(int(each[:-1]) if each.endswith("m") else round(1000 * float(each)) for each in requests)


def state_of(change: str, pod: Mapping[str, Any], time_s: float) -> PodState:
    """The state that a change of the watch reports.

    Args:
        change: its type: ``ADDED``, ``MODIFIED`` or ``DELETED``.
        pod: the manifest of the pod.
        time_s: seconds since the epoch.
    """
    labels = pod["metadata"].get("labels", {})
    phase, spec = pod["status"].get("phase", "Pending"), pod["spec"]
    is_deleted = change == "DELETED"
    is_alive = not is_deleted and phase in ("Pending", "Running")
    requests = (each.get("resources", {}).get("requests", {}).get("cpu", "0") for each in spec["containers"])
    return PodState(
        time_s=time_s,
        pod=pod["metadata"]["name"],
        owner=labels.get(OWNER, labels.get("app", "")),
        component=labels.get("app.kubernetes.io/component", ""),
        is_bound=is_alive and bool(spec.get("nodeName")),
        is_running=is_alive and phase == "Running" and "deletionTimestamp" not in pod["metadata"],
        milli_cpus=milli_cpus(requests),
        is_deleted=is_deleted,
        has_ended=phase in ("Succeeded", "Failed"),
    )


@dataclass(slots=True)
class Recorder:
    """Records the changes of all pods of a namespace, from now on, in a thread that ends with the process."""

    core: Any
    namespace: str
    _states: list[PodState] = field(default_factory=list)
    _changed: Condition = field(default_factory=Condition)

    def start(self) -> Recorder:
        """Begin to record."""
        Thread(target=self._record, name="timeline", daemon=True).start()
        return self

    def timeline(self) -> Timeline:
        """What was recorded so far."""
        with self._changed:
            return Timeline(states=tuple(self._states))

    def wait_until(self, holds: Any, limit_s: float, what: str) -> Timeline:
        """Wait until a condition on the timeline holds.

        Args:
            holds: (timeline) -> whether it does.
            limit_s: seconds after which the test has failed.
            what: the condition, for the message.

        Raises:
            AssertionError: it did not come to hold.
        """
        end_s = time.monotonic() + limit_s
        while True:
            with self._changed:
                count = len(self._states)
            now = self.timeline()
            if holds(now):
                return now
            with self._changed:
                left_s = end_s - time.monotonic()
                assert left_s > 0, f"not within {limit_s:g} s: {what}"
                if len(self._states) == count:
                    self._changed.wait(min(left_s, 1.0))

    def _record(self) -> None:
        while True:
            api = client.CoreV1Api(self.core.api_client)
            stream = watch.Watch().stream(api.list_namespaced_pod, self.namespace, timeout_seconds=_WATCH_S)
            for event in stream:
                state = state_of(event["type"], event["raw_object"], time.time())
                with self._changed:
                    self._states.append(state)
                    self._changed.notify_all()
