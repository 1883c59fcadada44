"""The manifest of a pod: its template, and what the master adds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import MEMORY_RAISES, NOTE
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, owner_reference, pod_manifest
from elasticdl.shared.kubernetes.quantities import format_bytes, parse_bytes
from elasticdl.shared.kubernetes.templates import PodTemplates, WorkerPriority
from elasticdl.shared.names import Incarnation, JobId, PodName, Service

MEMORY: Manifest = {"limits": {"memory": "4Gi", "cpu": "1"}, "requests": {"memory": "2000M", "cpu": "1"}}


def template(name: str) -> Manifest:
    main: Manifest = {"name": name, "image": "i", "resources": deepcopy(MEMORY)}
    main["env"] = [{"name": "ELASTICDL_JOB", "value": "theirs"}, {"name": "MINE", "value": "1"}]
    return {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}},
        "spec": {"restartPolicy": "Always", "containers": [{"name": "sidecar"}, main]},
    }


def job(**facts: Any) -> ClusterJob:
    return ClusterJob(
        job=JobId("job-1"),
        run=Incarnation("r1"),
        owner=owner_reference({"metadata": {"name": "job-1", "uid": "j1"}}),
        templates=PodTemplates(worker=template("worker"), ps=template("ps"), **facts),
    )


def environment(manifest: Manifest, container: int = 1) -> dict[str, Any]:
    variables = manifest["spec"]["containers"][container]["env"]
    assert len({each["name"] for each in variables}) == len(variables)
    return {
        each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"]
        for each in variables
    }


def test_a_worker() -> None:
    made = pod_manifest(job(), PodName("worker-3"), Service.WORKER, 17)
    assert made["metadata"]["name"] == "job-1-worker-3-17"
    assert made["metadata"]["labels"] == {
        "team": "a",
        "app.kubernetes.io/name": "elasticdl",
        "app.kubernetes.io/instance": "job-1",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "elasticdl",
        "elasticdl.org/pod": "worker-3",
        "elasticdl.org/order": "17",
    }
    assert made["metadata"]["annotations"] == {"note": "b", MEMORY_RAISES: "0"}
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Job", "job-1", "j1")
    assert made["spec"]["restartPolicy"] == "Never"
    assert made["spec"]["automountServiceAccountToken"] is False
    assert environment(made) == {
        "ELASTICDL_JOB": "job-1",
        "ELASTICDL_POD": "worker-3",
        "ELASTICDL_RUN": "r1",
        "ELASTICDL_TERMINATION_MESSAGE": "/dev/termination-log",
        "ELASTICDL_INSTANCE": "metadata.uid",
        "ELASTICDL_HOST": "status.podIP",
        "ELASTICDL_ADVERTISED_HOST": "status.podIP",
        "ELASTICDL_NODE": "spec.nodeName",
        "MINE": "1",
    }


def test_a_ps_publishes_the_address_of_its_pod() -> None:
    made = pod_manifest(job(), PodName("ps-0"), Service.PS, 5)
    variables = environment(made)
    assert (variables["ELASTICDL_HOST"], variables["ELASTICDL_ADVERTISED_HOST"]) == ("status.podIP", "status.podIP")
    assert "priorityClassName" not in made["spec"]


def test_the_template_stays_as_it_is() -> None:
    made = job()
    pod_manifest(made, PodName("worker-0"), Service.WORKER, 1, memory_raises=2)
    assert made.templates.worker == template("worker")


def test_workers_have_priority_classes() -> None:
    priority = WorkerPriority(high="h", low="l", high_share=0.5)
    made = job(workers=2, worker_priority=priority)
    found = [
        pod_manifest(made, PodName(f"worker-{number}"), Service.WORKER, 1)["spec"]["priorityClassName"]
        for number in range(3)
    ]
    assert found == ["h", "l", "l"]


@pytest.mark.parametrize(("spare_priority", "found"), [("s", "s"), ("", "l")])
def test_spares_have_a_priority_class_of_their_own_if_there_is_one(spare_priority: str, found: str) -> None:
    priority = WorkerPriority(high="h", low="l", high_share=0.5)
    made = job(workers=2, worker_priority=priority, spare_priority=spare_priority)
    spare = pod_manifest(made, PodName("worker-2"), Service.WORKER, 1, is_spare=True)
    assert spare["spec"]["priorityClassName"] == found


@pytest.mark.parametrize(("raises", "memory"), [(1, "6144Mi"), (2, "9216Mi"), (3, "13824Mi"), (9, "13824Mi")])
def test_a_pod_that_ran_out_of_memory_gets_more(raises: int, memory: str) -> None:
    made = pod_manifest(job(), PodName("ps-0"), Service.PS, 5, raises)
    resources = made["spec"]["containers"][1]["resources"]
    assert resources["limits"] == {"memory": memory, "cpu": "1"}
    assert parse_bytes(resources["requests"]["memory"]) >= 2e9 * 1.5 ** min(raises, 3)
    annotations = made["metadata"]["annotations"]
    assert annotations[MEMORY_RAISES] == str(min(raises, 3))
    assert annotations[NOTE] == f"it gets {memory} of memory instead of 4Gi, because a pod like it ran out of it"


@pytest.mark.parametrize(
    ("quantity", "size_bytes"),
    [("4Gi", 4 << 30), ("1.5e3", 1500), ("512M", 512_000_000), ("1000m", 1), (128, 128), ("1k", 1000), ("0.5Ki", 512)],
)
def test_quantities_of_memory(quantity: str, size_bytes: int) -> None:
    assert parse_bytes(quantity) == size_bytes
    assert parse_bytes(format_bytes(size_bytes)) >= size_bytes


@pytest.mark.parametrize("text", ["", "Gi", "4GB", "-1", "4 Gi"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_bytes(text)
