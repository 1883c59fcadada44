"""How workers and the master's decisions change the ring, and ps-0, which its leader serves."""

from __future__ import annotations

from elasticdl.master.core.closing.apply import reset_closing
from elasticdl.master.core.evaluation.apply import abandon_evaluation
from elasticdl.master.core.identity import declared_sender
from elasticdl.master.core.pods.state import Pod, PodPhase
from elasticdl.master.core.rings.state import DIFFERENCES_MAX, ReadyWorker
from elasticdl.master.core.state import State
from elasticdl.shared.messages.commands import FormRing
from elasticdl.shared.messages.events import Envelope, ReplicaDiffered, RingMemberReady
from elasticdl.shared.names import NO_INSTANCE, NOBODY, SERVED_REPLICA, PodInstance, PodName, Service


def on_ring_member_ready(state: State, envelope: Envelope, event: RingMemberReady) -> None:
    """Apply that a worker asks to be a member. One that left an earlier generation than the present one is in it."""
    ring = state.ring
    is_member = any((one.worker, one.incarnation) == (envelope.name, envelope.incarnation) for one in ring.members)
    if is_member and event.left < ring.generation:
        return
    _, ring.instances[envelope.incarnation] = declared_sender(state, envelope)
    ring.ready[envelope.name] = ReadyWorker(incarnation=envelope.incarnation, said=event)


def on_replica_differed(state: State, envelope: Envelope, event: ReplicaDiffered) -> None:
    """Apply that the weights of a member were not those of the others."""
    differences = state.ring.differences
    if len(differences) < DIFFERENCES_MAX:
        differences.append(f"{envelope.name} differed from the other replicas in {event.tensor} at step {event.step}")


def apply_form_ring(state: State, command: FormRing) -> None:
    """Apply a new generation: its leader serves the model."""
    ring = state.ring
    ring.generation, ring.members = command.generation, command.members
    for member in command.members:
        ring.ready.pop(member.worker, None)
    known = {one.incarnation for one in ring.members} | {one.incarnation for one in ring.ready.values()}
    ring.instances = {one: instance for one, instance in ring.instances.items() if one in known}
    leader = state.pods[command.members[0].worker]
    served = state.pods.get(SERVED_REPLICA)
    if served is None:
        served = state.pods[SERVED_REPLICA] = Pod(name=SERVED_REPLICA, service=Service.PS, is_hosted=True)
    if served.instance != leader.instance:
        _lose_served(state, served)
        served.instance, served.phase = leader.instance, PodPhase.STARTING
        served.starts += 1


def on_worker_process_ended(state: State, worker: PodName, instance: PodInstance) -> None:
    """Apply that a process of a worker has ended: it is no member any more, and does not serve the model."""
    state.ring.ready.pop(worker, None)
    served = state.pods.get(SERVED_REPLICA)
    if served is not None and served.is_hosted and served.instance == instance != NO_INSTANCE:
        _lose_served(state, served)


def reset_ring(state: State) -> None:
    """Apply the start of a run: no process of the former one is left. Numbers of generations continue."""
    state.ring.members = ()
    state.ring.ready.clear()
    state.ring.instances.clear()


def _lose_served(state: State, served: Pod) -> None:
    served.former_instance, served.instance = served.instance, NO_INSTANCE
    served.incarnation, served.phase = NOBODY, PodPhase.EXITED
    served.is_unresponsive = False
    if state.training and not state.is_final:
        state.training.on_ps_exited(served.name)
        abandon_evaluation(state)
        reset_closing(state)
