"""The timeline that the scenarios of tests/cluster measure with."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cluster.scenarios.timeline import Timeline, mean, milli_cpus, state_of

LABELS = {"app.kubernetes.io/instance": "job", "app.kubernetes.io/component": "worker"}


def manifest(name: str, phase: str, node: str = "node", **metadata: Any) -> dict[str, Any]:
    """A pod with two containers that request 80m and 1 CPU."""
    requests = [{"resources": {"requests": {"cpu": cpus}}} for cpus in ("80m", "1")]
    return {
        "metadata": {"name": name, "labels": LABELS, **metadata},
        "spec": {"nodeName": node, "containers": requests},
        "status": {"phase": phase},
    }


def history() -> Timeline:
    """One pod is bound at 1, runs at 3 and is deleted at 9; another one runs from 5 and terminates from 8 on."""
    return Timeline(
        states=(
            state_of("ADDED", manifest("a", "Pending", node=""), 0.0),
            state_of("MODIFIED", manifest("a", "Pending"), 1.0),
            state_of("MODIFIED", manifest("a", "Running"), 3.0),
            state_of("ADDED", manifest("b", "Running"), 5.0),
            state_of("MODIFIED", manifest("b", "Running", deletionTimestamp="now"), 8.0),
            state_of("DELETED", manifest("a", "Running"), 9.0),
        )
    )


def test_a_pod_holds_its_cpus_from_its_node_to_its_end() -> None:
    assert history().bound("job") == [(0.0, 0), (1.0, 1080), (3.0, 1080), (5.0, 2160), (8.0, 2160), (9.0, 1080)]
    assert history().bound("another") == []


@pytest.mark.parametrize(("start_s", "end_s", "expected"), [(0, 1, 0), (1, 5, 1080), (4, 6, 1620), (9, 20, 1080)])
def test_the_mean_over_an_interval(start_s: float, end_s: float, expected: float) -> None:
    assert history().mean_bound(["job", "another"], start_s, end_s) == expected
    assert mean([], start_s, end_s) == 0


def test_running_pods_at_a_time() -> None:
    assert [history().running_at("job", "worker", time_s) for time_s in (2, 4, 6, 8.5, 10)] == [0, 1, 2, 1, 0]
    assert history().first_running_s("job", "worker") == 3.0
    assert history().first_running_s("job", "worker", count=2) == 5.0
    assert history().first_created_s("job", "worker") == 0.0
    assert history().first_end_s("job", "worker") == 8.0
    assert history().running_at("job", "worker") == 0
    assert history().fewest_running("job", "worker", 4.0, 8.5) == 1
    assert [history().settled_s("job", "worker", after_s) for after_s in (2.0, 9.5)] == [9.0, 9.5]
    with pytest.raises(LookupError, match="3 running"):
        history().first_running_s("job", "worker", count=3)


def test_jobs_and_their_ends() -> None:
    labels = {"app.kubernetes.io/instance": "clicks-1a2b3c"}
    of_clicks = Timeline(
        states=(state_of("ADDED", manifest("a", "Running") | {"metadata": {"name": "a", "labels": labels}}, 0.0),)
    )
    assert [of_clicks.job(name) for name in ("clicks", "click")] == ["clicks-1a2b3c", ""]
    ended = Timeline(states=(*history().states, state_of("MODIFIED", manifest("b", "Succeeded"), 10.0)))
    assert [each.has_ended("job", "worker") for each in (history(), ended)] == [False, True]
    assert ended.last_end_s("job") == 10.0
    assert [history().lost_pods("job", until_s) for until_s in (9.0, 10.0)] == [set(), {"a"}]


def test_quantities() -> None:
    assert milli_cpus(["80m", "2", "0.5"]) == 2580
