"""LimitRanges: defaults are counted, and what the API server would refuse is not asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.clusters import after, job, nodes
from tests.unit.controller.manifests import case, training_job

from elasticdl.controller.core import Cluster, decide
from elasticdl.controller.service.lifecycle import core_job
from elasticdl.controller.service.limit_ranges import LimitRange, read_limit_range, refusal, with_defaults
from elasticdl.shared.kubernetes.kinds import Manifest


def manifest(**item: Any) -> Manifest:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}, {"type": "Container", **item}]
    return {"metadata": {"name": "limits", "namespace": "team"}, "spec": {"limits": limits}}


def limit_range(**item: Any) -> LimitRange:
    found = read_limit_range(manifest(**item))
    assert found
    return found


def test_what_is_not_requested_has_a_default() -> None:
    found = limit_range(default={"memory": "2Gi", "cpu": "1"}, defaultRequest={"memory": "1Gi"})
    assert with_defaults({"cpu": 500}, {"cpu": 500}, [found]) == (
        {"cpu": 500, "memory": 1024},
        {"cpu": 500, "memory": 2048},
    )
    assert with_defaults({}, {"memory": 512}, [found]) == ({"cpu": 1000, "memory": 512}, {"cpu": 1000, "memory": 512})


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"max": {"cpu": "4"}}, ""),
        ({"max": {"cpu": "1500m"}}, "at most 1.5 cpu for a container, and a worker asks for 2"),
        ({"max": {"memory": "1Gi"}}, "at most 1 GiB memory for a container, and a worker asks for 2 GiB"),
        ({"min": {"cpu": "3"}}, "no less than 3 cpu for a container, and a worker asks for 1"),
        ({"maxLimitRequestRatio": {"cpu": "1.5"}}, "at most 1.5 times the request"),
        ({"maxLimitRequestRatio": {"cpu": "1500m"}}, "at most 1.5 times the request"),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, ""),
    ],
)
def test_what_the_api_server_refuses(item: dict[str, Any], text: str) -> None:
    found = refusal("worker", {"cpu": 1000, "memory": 2048}, {"cpu": 2000, "memory": 2048}, [limit_range(**item)])
    assert text in found
    assert found.startswith("LimitRange team/limits allows") == bool(text)


def test_one_that_says_nothing_of_pods() -> None:
    found = manifest()
    del found["spec"]["limits"][1]
    assert read_limit_range(found) is None


def test_a_trainingjob_knows_its_limit_ranges() -> None:
    plain = case(training_job())
    before = core_job(plain)
    assert before is not None
    assert not before.forbidden
    found = core_job(replace(plain, limit_ranges=[limit_range(defaultRequest={"vendor/card": "1"})]))
    assert found is not None
    assert found.worker.request == {**before.worker.request, "vendor/card": 1}
    limited = core_job(replace(plain, limit_ranges=[limit_range(max={"memory": "900Mi"})]))
    assert limited is not None
    assert "LimitRange team/limits allows at most" in limited.forbidden


def test_a_job_whose_pods_would_be_refused_waits_with_the_reason_and_stops_no_other() -> None:
    text = "LimitRange team/limits allows at most 1 cpu for a container, and a worker asks for 2"
    refused, other = job("a", forbidden=text), job("b", created_s=1.0)
    targets = decide(Cluster(nodes=nodes(8)), [refused, other], 0.0)
    assert not targets.of("a").admitted
    assert targets.of("a").reason == f"waits, because pods would be refused: {text}"
    assert targets.of("b").admitted


def test_a_job_that_runs_keeps_what_it_has() -> None:
    cluster, first = Cluster(nodes=nodes(8, 8)), job("a", workers=(1, 2))
    cluster = after(cluster, [first], decide(cluster, [first], 0.0))
    target = decide(cluster, [job("a", forbidden="too large")], 0.0).of("a")
    assert (target.workers, target.starts, target.drains) == (2, (), ())
    assert target.reason == "2 workers and 1 ps: too large"
    assert target.admitted
