"""Mutations of what is reported about pods, and of what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.sim.mutations.registry import Protects, handled, mutation, replaced

from elasticdl.master.core import State
from elasticdl.master.core.evolve import HANDLERS
from elasticdl.master.core.pods import restarts
from elasticdl.shared.messages import events
from elasticdl.shared.messages.events import Envelope, ExitCause
from elasticdl.shared.pods import supervisor
from elasticdl.shared.pods.ports import PodStatus


@mutation("only changes beyond the reported ones count, and an end only for its instance", protects=Protects.LIVENESS)
def late_changes_of_pods_are_ignored() -> Iterator[None]:
    """Two rules in a row guard this: the supervisor's and the core's."""
    original = HANDLERS[events.PodExited]

    def on_pod_exited(state: State, envelope: Envelope, event: events.PodExited) -> None:
        if event.pod in state.pods:
            original(state, envelope, replace(event, instance=state.pods[event.pod].instance))

    with replaced(supervisor, "_is_newer", lambda status, former: True), handled(events.PodExited, on_pod_exited):
        yield


@mutation("a pod that the platform does not list any more has ended", protects=Protects.LIVENESS)
def missing_pods_have_ended() -> Iterator[None]:
    with replaced(supervisor.PodSupervisor, "_report_missing", lambda self, reported, listed: None):
        yield


@mutation(
    "another pod of the same order is another pod",
    protects=Protects.LIVENESS,
    scenario="an-order-is-repeated-after-its-node-is-lost",
)
def pods_of_one_order_differ() -> Iterator[None]:
    original = supervisor._is_newer

    def is_newer(status: PodStatus, former: PodStatus) -> bool:
        return original(replace(status, instance=former.instance), former)

    with replaced(supervisor, "_is_newer", is_newer):
        yield


@mutation(
    "preemption is not counted as a fault",
    protects=Protects.LIVENESS,
    scenario="a-worker-is-preempted-again-and-again",
)
def preemption_is_not_counted() -> Iterator[None]:
    original = restarts.RESTARTS[ExitCause.PREEMPTED]
    restarts.RESTARTS[ExitCause.PREEMPTED] = restarts.Restart.COUNTED
    try:
        yield
    finally:
        restarts.RESTARTS[ExitCause.PREEMPTED] = original
