"""What a new master knows of the pods that a former one has created itself."""

from __future__ import annotations

from elasticdl.master.core import State
from elasticdl.master.core.pods.state import PodPhase
from elasticdl.shared.messages.commands import StartPod, StopPod
from elasticdl.shared.pods.ports import Pods, PodStatus, Running
from elasticdl.shared.pods.supervisor import PodSupervisor, Publish, UnreportedPod


def supervisor_of(state: State, pods: Pods, publish: Publish, creation_seq: int) -> PodSupervisor:
    """A supervisor that continues where that of a former master has ended.

    Args:
        creation_seq: position of the beginning of this master's term in the log.
    """
    to_execute = {
        command.pod
        for _, decided in state.pending_commands
        for command in decided.commands
        if isinstance(command, StartPod | StopPod)
    }
    known = [
        PodStatus(pod=pod.name, service=pod.service, creation_seq=0, phase=Running(), instance=pod.instance)
        for pod in state.pods.values()
        if pod.has_process and not pod.is_hosted
    ]
    unreported = [
        UnreportedPod(
            pod=pod.name,
            service=pod.service,
            former=pod.former_instance,
            is_wanted=pod.phase is PodPhase.ORDERED,
            is_spare=state.is_spare(pod),
        )
        for pod in state.pods.values()
        if pod.phase in (PodPhase.ORDERED, PodPhase.STOPPING) and not pod.has_process and pod.name not in to_execute
    ]
    return PodSupervisor(pods, publish, known, unreported, creation_seq)
