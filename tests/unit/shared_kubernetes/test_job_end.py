"""How many pods of a Job have failed, although its status may lag behind."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.shared.kubernetes.job_end import failures

TRACKED = ["batch.kubernetes.io/job-tracking"]


def pod(uid: str, phase: str, *, is_tracked: bool = True, is_deleted: bool = False) -> dict[str, Any]:
    metadata: dict[str, Any] = {"uid": uid, "finalizers": TRACKED if is_tracked else []}
    if is_deleted:
        metadata["deletionTimestamp"] = "2026-11-24T12:00:00Z"
    return {"metadata": metadata, "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("status", "pods", "expected"),
    [
        ({}, [pod("a", "Running")], 0),
        ({"failed": 2}, [pod("a", "Failed", is_tracked=False), pod("b", "Running")], 2),
        # The controller has not seen yet that the pod has failed.
        ({}, [pod("a", "Failed"), pod("b", "Running")], 1),
        # It has seen it, and counts the pod next.
        ({"failed": 1, "uncountedTerminatedPods": {"failed": ["a"]}}, [pod("a", "Failed")], 2),
        ({"failed": 1, "uncountedTerminatedPods": {"failed": ["a"]}}, [pod("a", "Failed", is_tracked=False)], 2),
        # A pod on a lost node is to be deleted, and counts as failed.
        ({"failed": 1}, [pod("a", "Running", is_deleted=True), pod("b", "Running")], 2),
        ({"uncountedTerminatedPods": {"succeeded": ["a"]}}, [pod("a", "Succeeded", is_deleted=True)], 0),
    ],
)
def test_pods_that_the_controller_has_not_counted_yet_count(
    status: dict[str, Any], pods: list[dict[str, Any]], expected: int
) -> None:
    assert failures(status, pods) == expected
