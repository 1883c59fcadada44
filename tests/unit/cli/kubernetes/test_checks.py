"""Checks of nodes and quotas before a job starts."""

from __future__ import annotations

import pytest
from tests.unit.cli.kubernetes.test_manifests import planned

from elasticdl.cli.kubernetes.checks import (
    CLIENT_RIGHTS,
    Finding,
    node_finding,
    quota_finding,
    refuse_problems,
    rights_finding,
)
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.kinds import Kind, Manifest


def node(**allocatable: str) -> Manifest:
    return {"status": {"allocatable": allocatable}}


def test_a_pod_larger_than_every_node_is_named() -> None:
    nodes = (node(cpu="500m", memory="64Gi"), node(cpu="8", memory="3900Mi"))
    found = node_finding(planned(), nodes)
    assert found.problem == (
        "no node is large enough for a pod of worker (cpu=1, memory=4096Mi); the largest have cpu=8, memory=64Gi"
    )
    assert not node_finding(planned(), (*nodes, node(cpu="1", memory="4Gi"))).problem
    with pytest.raises(UserError, match="--worker_resource_request"):
        refuse_problems(iter([found]))


def test_a_quota_without_room_for_the_first_pods_is_named() -> None:
    def quota(used: str) -> Manifest:
        status = {"hard": {"cpu": "4", "pods": "3"}, "used": {"cpu": used, "pods": "0"}}
        return {"metadata": {"name": "team", "namespace": "a"}, "status": status}

    assert not quota_finding(planned(), (quota("1"),)).problem
    found = quota_finding(planned(), (quota("2500m"),))
    assert found.problem.startswith("quota team has too little cpu left") and "1.5 of 4" in found.problem


def test_missing_rights_are_listed() -> None:
    def is_allowed(verb: str, kind: Kind, *, subresource: str = "") -> bool:
        return not (verb == "create" and subresource == "portforward")

    assert "pods/portforward" in [f"{kind.plural}/{subresource}" for kind, subresource, _ in CLIENT_RIGHTS]
    assert rights_finding(is_allowed).problem == "you may not: create pods/portforward"
    refuse_problems(iter([Finding(subject="nodes", detail="3")]))
