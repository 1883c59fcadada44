"""What Kubernetes says about a pod, as the rest of the system understands it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import NOTE, pod_labels
from elasticdl.shared.kubernetes.pod_status import status_of
from elasticdl.shared.messages.events import ExitCause, RunningBatch
from elasticdl.shared.names import JobId, PodName, Purpose, Service
from elasticdl.shared.pods.ports import Ended, Pending, Phase, Running

RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
DELETION = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(state: Manifest | None = None, metadata: Manifest | None = None, **status: Any) -> Manifest:
    labels = pod_labels(JobId("job-1"), PodName("worker-0"), Service.WORKER, 17)
    containers = [{"name": "sidecar", "state": RUNNING}]
    if state is not None:
        containers.append({"name": "worker", "state": state})
    return {
        "metadata": {"name": "job-1-worker-0-17", "uid": "u1", "labels": labels, **(metadata or {})},
        "status": {"phase": "Pending", "containerStatuses": containers, **status},
    }


def terminated(exit_code: int, reason: str = "Error", message: str = "") -> Manifest:
    return {"terminated": {"exitCode": exit_code, "reason": reason, "message": message}}


def disrupted(reason: str) -> list[Manifest]:
    return [{"type": "DisruptionTarget", "status": "True", "reason": reason}]


def phase_of(manifest: Manifest, **facts: bool) -> Phase:
    status = status_of(manifest, **facts)
    assert (status.pod, status.service, status.creation_seq, status.instance) == ("worker-0", Service.WORKER, 17, "u1")
    return status.phase


def ended(manifest: Manifest, **facts: bool) -> Ended:
    phase = phase_of(manifest, **facts)
    assert isinstance(phase, Ended)
    return phase


def waiting(reason: str, message: str = "") -> Manifest:
    return {"waiting": {"reason": reason, "message": message}}


PULL = 'failed to pull and unpack image "x/y:1": failed to resolve reference "x/y:1": x/y:1: not found'
PENDING = [
    (pod(), ""),
    (pod(waiting("ContainerCreating")), ""),
    (pod(waiting("PodInitializing")), ""),
    (pod(waiting("ErrImagePull", PULL)), 'can\'t pull the image x/y:1: resolve reference "x/y:1": x/y:1: not found'),
    (
        pod(waiting("ImagePullBackOff", 'Back-off pulling image "x/y:1": ErrImagePull: ' + PULL)),
        'can\'t pull the image x/y:1: resolve reference "x/y:1": x/y:1: not found',
    ),
    (pod(waiting("ErrImagePull", 'image "a": rpc error: code = NotFound desc = gone')), "can't pull the image a: gone"),
    (
        pod(waiting("CreateContainerConfigError", 'secret "s" not found')),
        'container worker: CreateContainerConfigError: secret "s" not found',
    ),
    (pod(waiting("InvalidImageName")), "container worker: InvalidImageName"),
    (
        pod(
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 Insufficient cpu. no new claims, preemption: 0/1 nodes",
                }
            ]
        ),
        "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu",
    ),
    (
        pod(initContainerStatuses=[{"name": "i", "state": waiting("ErrImageNeverPull", "m")}]),
        "container i: ErrImageNeverPull: m",
    ),
    (pod(metadata={"annotations": {NOTE: "it gets more memory"}}), "it gets more memory"),
]


@pytest.mark.parametrize(("manifest", "reason"), PENDING)
def test_a_pending_pod_says_why(manifest: Manifest, reason: str) -> None:
    assert phase_of(manifest) == Pending(reason=reason)


@pytest.mark.parametrize(
    "reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"]
)
def test_a_pod_whose_node_can_not_create_it_is_given_up_after_some_time(reason: str) -> None:
    phase = status_of(pod(waiting(reason)), image_pull_s=9.0).phase
    assert isinstance(phase, Pending) and phase.limit_s == 9.0
    no_room = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    for patient in (pod(conditions=[no_room]), pod(waiting("ContainerCreating"))):
        waits = status_of(patient, image_pull_s=9.0).phase
        assert isinstance(waits, Pending) and waits.limit_s == 0.0


def test_a_pod_runs_while_its_main_container_does() -> None:
    assert phase_of(pod(RUNNING, phase="Running")) == Running()
    assert phase_of(pod(RUNNING, phase="Running", metadata=DELETION)) == Running()
    assert phase_of(pod(waiting("ContainerCreating"), phase="Running")) == Pending(reason="")


ENDS = [
    (pod(terminated(0, "Completed")), 0, ExitCause.FINISHED),
    (pod(terminated(1)), 1, ExitCause.REFUSED),
    (pod(terminated(75)), 75, ExitCause.DISCONNECTED),
    (pod(terminated(137)), -9, ExitCause.PREEMPTED),
    (pod(terminated(139)), -11, ExitCause.OWN_FAULT),
    (pod(terminated(255)), 255, ExitCause.OWN_FAULT),
    (pod(terminated(79)), 79, ExitCause.HUNG),
    (pod(terminated(137, "OOMKilled")), -9, ExitCause.OUT_OF_MEMORY),
    (pod(terminated(137, "OOMKilled"), metadata=DELETION), -9, ExitCause.OUT_OF_MEMORY),
    (pod(terminated(137, "ContainerStatusUnknown")), -9, ExitCause.NODE_LOST),
    (pod(terminated(0), metadata=DELETION), 0, ExitCause.PREEMPTED),
    (pod(terminated(143), metadata=DELETION), -15, ExitCause.PREEMPTED),
    (pod(terminated(139), metadata=DELETION), -11, ExitCause.OWN_FAULT),
    (pod(terminated(1), metadata=DELETION), 1, ExitCause.REFUSED),
    (pod(terminated(0), conditions=disrupted("PreemptionByScheduler")), 0, ExitCause.PREEMPTED),
    (pod(terminated(0), conditions=disrupted("EvictionByEvictionAPI")), 0, ExitCause.PREEMPTED),
    (pod(terminated(137), conditions=disrupted("DeletionByTaintManager")), -9, ExitCause.PREEMPTED),
    (pod(phase="Failed", reason="Evicted"), 0, ExitCause.PREEMPTED),
    (pod(phase="Failed", reason="OutOfcpu"), 0, ExitCause.PREEMPTED),
    (pod(phase="Failed", conditions=disrupted("DeletionByPodGC")), 0, ExitCause.NODE_LOST),
    (pod(RUNNING, phase="Unknown", reason="NodeLost"), 0, ExitCause.NODE_LOST),
    (pod(phase="Failed", initContainerStatuses=[{"name": "i", "state": terminated(3)}]), 3, ExitCause.OWN_FAULT),
]


@pytest.mark.parametrize(("manifest", "exit_code", "cause"), ENDS)
def test_an_end_has_a_cause(manifest: Manifest, exit_code: int, cause: ExitCause) -> None:
    end = ended(manifest)
    assert (end.exit_code, end.cause) == (exit_code, cause)


@pytest.mark.parametrize("exit_code", [0, 75, 137, 143])
def test_a_pod_that_the_master_deleted_has_stopped(exit_code: int) -> None:
    assert ended(pod(terminated(exit_code), metadata=DELETION), is_deleted=True).cause is ExitCause.STOPPED


@pytest.mark.parametrize(
    ("manifest", "is_deleted", "cause"),
    [
        (pod(RUNNING, metadata=DELETION), False, ExitCause.NODE_LOST),
        (pod(RUNNING, metadata=DELETION), True, ExitCause.STOPPED),
        (pod(metadata=DELETION), False, ExitCause.PREEMPTED),
        (pod(metadata=DELETION), True, ExitCause.STOPPED),
        (pod(RUNNING, conditions=disrupted("PreemptionByScheduler")), False, ExitCause.PREEMPTED),
        (pod(RUNNING, conditions=disrupted("DeletionByPodGC")), False, ExitCause.NODE_LOST),
    ],
)
def test_a_pod_that_is_gone_without_a_trace(manifest: Manifest, is_deleted: bool, cause: ExitCause) -> None:
    assert ended(manifest, is_gone=True, is_deleted=is_deleted).cause is cause


def test_a_container_that_was_seen_to_end_keeps_its_cause_when_it_is_gone() -> None:
    assert ended(pod(terminated(137, "OOMKilled")), is_gone=True).cause is ExitCause.OUT_OF_MEMORY


def test_a_command_that_can_not_be_run_is_refused_with_its_message() -> None:
    end = ended(pod(terminated(128, "StartError", 'exec: "/no/such": no such file'), phase="Failed"))
    assert (end.cause, end.log_tail) == (ExitCause.REFUSED, 'exec: "/no/such": no such file')


def test_a_termination_message_says_which_batches_were_running() -> None:
    message = "                  12 batches computed. Those with a * were running:\n*     train task 7 batch 3\n"
    end = ended(pod(terminated(139, message=message)))
    batch = RunningBatch(task=TaskRef(purpose=Purpose.TRAIN, number=7), batch=3)
    assert (end.batches, end.running_batches) == (12, (batch,))


@given(
    state=st.sampled_from([None, {}, RUNNING, waiting("x"), terminated(0), terminated(137), terminated(137, "x")]),
    phase=st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    reason=st.sampled_from(["", "Evicted", "NodeLost", "UnexpectedAdmissionError"]),
    disruption=st.sampled_from(["", "PreemptionByScheduler", "DeletionByPodGC", "something new"]),
    is_deleted=st.booleans(),
    is_gone=st.booleans(),
)
def test_no_disruption_counts_as_a_fault(
    state: Manifest | None, phase: str, reason: str, disruption: str, is_deleted: bool, is_gone: bool
) -> None:
    """Only the process itself, by its exit code or its memory, can be at fault."""
    conditions = disrupted(disruption) if disruption else []
    found = phase_of(
        pod(state, phase=phase, reason=reason, conditions=conditions), is_deleted=is_deleted, is_gone=is_gone
    )
    if is_gone:
        assert isinstance(found, Ended)
    if isinstance(found, Ended):
        assert found.cause not in (ExitCause.OWN_FAULT, ExitCause.REFUSED, ExitCause.OUT_OF_MEMORY)
