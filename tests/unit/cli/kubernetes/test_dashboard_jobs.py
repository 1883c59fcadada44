"""The jobs of a namespace on the dashboard."""

from __future__ import annotations

import json

import pytest
from tests.unit.shared_kubernetes.memory_api import MemoryApi

from elasticdl.cli.commands.dashboard import NamespaceJobs
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import ObjectList
from elasticdl.shared.kubernetes.kinds import Kind, Manifest
from elasticdl.shared.kubernetes.names import SUBMISSION_FILE


class Listing(MemoryApi):
    """A namespace with two Jobs, and no master's pod any more."""

    server = "https://cluster"

    def list(self, kind: Kind, *, labels: str = "", fields: str = "", everywhere: bool = False) -> ObjectList:
        found: tuple[Manifest, ...] = ()
        if kind is kinds.JOB:
            found = (job("first-1", "2026-01-01T10:00:00Z"), job("second-2", "2026-01-02T10:00:00Z"))
        elif kind is kinds.CONFIG_MAP:
            flags = {"flags": {"model_def": "/models/digits.py:create", "training_data": "s3://bucket/data"}}
            found = ({"metadata": {"name": "second-2"}, "data": {SUBMISSION_FILE: json.dumps(flags)}},)
        return ObjectList(items=found, resource_version="1")


def job(name: str, created: str) -> Manifest:
    done = {"type": "Complete", "status": "True"}
    return {
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": created},
        "spec": {},
        "status": {"conditions": [done]},
    }


def test_the_latest_job_of_a_namespace_comes_first() -> None:
    jobs = NamespaceJobs(Listing())
    latest, first = jobs.rows()
    assert (latest.key, latest.state, latest.submitted) == ("second-2", "succeeded", "2026-01-02 10:00")
    assert (latest.model, latest.data) == ("digits.py", "s3://bucket/data")
    assert (first.key, first.model) == ("first-1", "")
    assert jobs.find("first-1").job == "first-1"
    with pytest.raises(UserError, match="no job 'other'"):
        jobs.find("other")


def test_a_job_is_found_by_the_name_that_a_controller_has_for_it() -> None:
    api = Listing()
    assert NamespaceJobs(api).find(f"{api.namespace}/first").job == "first-1"
