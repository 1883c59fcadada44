"""Checks of nodes and quotas before a job starts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.unit.cli.kubernetes.test_manifests import planned

from elasticdl.cli.kubernetes.checks import (
    CLIENT_RIGHTS,
    MASTER_RIGHTS,
    Finding,
    master_rights_finding,
    node_finding,
    quota_finding,
    refuse_problems,
    rights_finding,
)
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.kinds import Kind, Manifest

REPOSITORY = Path(__file__).resolve().parents[4]


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


def test_the_deployment_gives_masters_the_rights_that_are_checked() -> None:
    """Each right that is checked is granted, and none besides."""
    objects = yaml.safe_load_all((REPOSITORY / "deploy/kustomize/base/rbac.yaml").read_text())
    (role,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == ("Role", "elasticdl-master"))
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {(kind.group, f"{kind.plural}/{sub}".rstrip("/"), verb) for kind, sub, verb in MASTER_RIGHTS}
    assert granted == needed


def test_a_right_that_the_master_lacks_is_named_with_its_remedy() -> None:
    def is_allowed(verb: str, kind: Kind, *, subresource: str = "") -> bool:
        return verb != "patch"

    found = master_rights_finding(is_allowed, "team")
    assert found.problem == "its service account may not: patch jobs in namespace team"
    assert "elasticdl-master: kubectl apply -k deploy/kustomize" in found.remedy
    assert not master_rights_finding(lambda *_, **__: True, "team").problem
