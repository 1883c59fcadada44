"""When a generation of the ring is over, and who is in the next one.

| since the last generation was formed | a new one is formed |
|---|---|
| a member has ended, stops, or sends no heartbeats | at once, of the others |
| a member has given the generation up, because a connection broke | once each member has, or is gone |
| a worker that is no member has a copy of the model, at most one round old | at once, with it |

A worker that starts copies the model from the ring while that trains on, and joins once it is *near*. A worker without
a copy is a member only where no other one is left.
"""

from __future__ import annotations

from elasticdl.master.core.decision import Decisions
from elasticdl.master.core.rings.state import ReadyWorker
from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import FormRing, RingMember
from elasticdl.shared.names import Incarnation, PodName, pod_number
from elasticdl.shared.words import some_of

_NAMES_SHOWN = 4


def decide_ring(state: State) -> Decisions:
    """Form the next generation, if the present one is over."""
    if not state.job.has_ring:
        return []
    ring = state.ring
    present = [one for one in ring.members if is_present(state, one.worker, one.incarnation)]
    joining = _joining(state, present)
    lost = [one.worker for one in ring.members if one not in present]
    if not present and not joining:
        return []
    reason = _reason(state, present, joining, lost)
    if not reason:
        return []
    members = (*_by_state(state, present), *(_member(name, ring.ready[name]) for name in joining))
    text = f"ring of {len(members)}: {reason}"
    return [(FormRing(generation=ring.generation + 1, members=members, reason=reason), text)]


def is_present(state: State, worker: PodName, incarnation: Incarnation) -> bool:
    """Whether a process can be in a ring: it runs, has not said that it stops, and sends heartbeats."""
    if not state.is_member(worker, incarnation):
        return False
    pod = state.pods[worker]
    return pod.stopped_incarnation != incarnation and not pod.is_unresponsive


def _reason(state: State, present: list[RingMember], joining: list[PodName], lost: list[PodName]) -> str:
    ring = state.ring
    if lost:
        return f"{some_of(lost, _NAMES_SHOWN)} left"
    left = [ring.ready[one.worker].said for one in present if one.worker in ring.ready]
    if left and len(left) == len(present):
        return left[0].reason or "all members left the generation before"
    if left or not joining:
        return ""
    if present and not state.all_ps_have_model:
        return ""  # The leader makes or restores the model; the others wait for it.
    return f"{some_of(joining, _NAMES_SHOWN)} joined"


def _joining(state: State, present: list[RingMember]) -> list[PodName]:
    """Workers that can be members now: those with a model first, the furthest of them before the others."""
    members = {one.worker for one in present}
    ready = {
        name: one.said
        for name, one in state.ring.ready.items()
        if name not in members and is_present(state, name, one.incarnation) and (one.said.is_near or not present)
    }
    return sorted(ready, key=lambda name: (not ready[name].has_model, -ready[name].step, pod_number(name)))


def _by_state(state: State, present: list[RingMember]) -> list[RingMember]:
    """The members in their order, but those that say that they have no model come last."""
    ready = state.ring.ready

    def lacks_model(member: RingMember) -> bool:
        return member.worker in ready and not ready[member.worker].said.has_model

    return sorted(present, key=lacks_model)


def _member(name: PodName, ready: ReadyWorker) -> RingMember:
    said = ready.said
    return RingMember(worker=name, incarnation=ready.incarnation, address=said.address, node=said.node)
