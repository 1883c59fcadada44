"""Names, labels, URL paths, and the rate of requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import RequestRate
from elasticdl.shared.kubernetes.names import POD_LABEL, labels, pod_labels, pod_object_name, selector
from elasticdl.shared.kubernetes.templates import PodTemplates, WorkerPriority
from elasticdl.shared.names import JOB_NAME_CHARS_MAX, JobId, PodName, Service

JOB = JobId("mnist-0a1b2c")


def container(name: str) -> kinds.Manifest:
    return {"spec": {"containers": [{"name": name}]}}


def test_the_name_of_a_pod_contains_its_order() -> None:
    assert pod_object_name(JOB, PodName("worker-0"), 17) == "mnist-0a1b2c-worker-0-17"


def test_labels_fit_into_kubernetes() -> None:
    """A label's value has at most 63 characters."""
    longest = JobId("j" * JOB_NAME_CHARS_MAX + "-0a1b2c")
    for value in pod_labels(longest, PodName("worker-99999"), Service.WORKER, 2**40).values():
        assert len(value) <= 63


def test_a_selector_finds_the_pods_of_a_job() -> None:
    assert selector(labels(JOB, Service.WORKER), POD_LABEL) == (
        "app.kubernetes.io/name=elasticdl,app.kubernetes.io/instance=mnist-0a1b2c,"
        "app.kubernetes.io/managed-by=elasticdl,app.kubernetes.io/component=worker,elasticdl.org/pod"
    )


def test_paths_of_objects() -> None:
    assert kinds.POD.path("team-a", "p", "log") == "/api/v1/namespaces/team-a/pods/p/log"
    assert kinds.JOB.path("team-a") == "/apis/batch/v1/namespaces/team-a/jobs"
    assert kinds.PRIORITY_CLASS.path("", "high") == "/apis/scheduling.k8s.io/v1/priorityclasses/high"
    assert kinds.POD.path("../x", "a/b") == "/api/v1/namespaces/..%2Fx/pods/a%2Fb"


@given(
    per_second=st.floats(1, 100),
    at_once=st.integers(1, 20),
    gaps_s=st.lists(st.floats(0, 2), min_size=1, max_size=200),
)
def test_the_rate_of_requests_is_limited(per_second: float, at_once: int, gaps_s: list[float]) -> None:
    rate, now_s, sent_s = RequestRate(per_second, at_once), 100.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        sent_s.append(now_s + rate.delay_s(now_s))
    for index in range(at_once, len(sent_s)):
        assert sent_s[index] - sent_s[index - at_once] >= 1 / per_second - 1e-6
    for first in range(len(sent_s)):
        span_s = sent_s[-1] - sent_s[first]
        assert len(sent_s) - first <= at_once + span_s * per_second + 1e-6


@pytest.mark.parametrize(("share", "high"), [(0.0, 0), (0.5, 3), (0.21, 2), (1.0, 5)])
def test_a_share_of_the_workers_has_high_priority(share: float, high: int) -> None:
    priority = WorkerPriority(high="h", low="l", high_share=share)
    assert [priority.class_of(number, 5) for number in range(7)] == ["h"] * high + ["l"] * (7 - high)


def test_templates_are_read_as_they_were_written() -> None:
    templates = PodTemplates(
        worker=container("worker"),
        ps=container("ps"),
        workers=4,
        worker_priority=WorkerPriority(high="h", low="l", high_share=0.5),
    )
    assert PodTemplates.from_json(templates.to_json()) == templates
    plain = PodTemplates(worker=container("worker"), ps=container("ps"))
    assert PodTemplates.from_json(plain.to_json()) == plain
    assert plain.template(Service.PS) == container("ps")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"worker": {}, "ps": {}}', '{"nothing": 1}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"pods\.json"):
        PodTemplates.from_json(text)
