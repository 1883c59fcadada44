"""The definition of TrainingJobs in a cluster of the tests."""

from __future__ import annotations

from tests.cluster.readiness import wait_until

from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CUSTOM_RESOURCE_DEFINITION, TRAINING_JOB
from elasticdl.shared.kubernetes.training_job.definition import definition

LIMIT_S = 60


def provide(api: KubernetesApi) -> None:
    """Create the definition, unless the cluster has it, and wait until the API server goes by it."""
    name = f"{TRAINING_JOB.plural}.{TRAINING_JOB.group}"
    if api.find(CUSTOM_RESOURCE_DEFINITION, name) is None:
        api.create(definition())

    def is_established() -> bool:
        conditions = api.get(CUSTOM_RESOURCE_DEFINITION, name).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    wait_until(is_established, lambda: "the definition of TrainingJob is not established", LIMIT_S)
