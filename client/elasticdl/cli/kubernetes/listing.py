"""``elasticdl jobs`` for a cluster."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from elasticdl.cli.commands.jobs import job_facts, print_jobs
from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs.handle import Condition
from elasticdl.cli.kubernetes.condition import FAILED_BY_MASTER, condition_of
from elasticdl.cli.kubernetes.lookup import connect, jobs_in
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.job.job_options import PATH_FLAGS
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.kubernetes.kinds import CONFIG_MAP, POD, Manifest
from elasticdl.shared.kubernetes.names import (
    COMPONENT_LABEL,
    JOB_LABEL,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    SUBMISSION_FILE,
    selector,
)
from elasticdl.shared.names import Service


def list_jobs(namespace: str, *, as_json: bool = False) -> list[dict[str, str]]:
    """Print one line per job in a namespace, oldest first.

    Args:
        namespace: value of ``--namespace``. Empty: the jobs of this machine were listed, and a cluster that can't be
            reached is only mentioned.
    """
    try:
        api = connect(namespace)
        found = job_rows(api)
    except ElasticDLError as error:
        if namespace:
            raise
        if not as_json:
            plain_console().print(f"The jobs on Kubernetes can't be listed: {str(error).splitlines()[0]}")
        return []
    rows = [row for row, _ in found]
    if not as_json:
        notes = [f"{row[0]}: {reason}" for row, condition in found if (reason := reason_of(condition))]
        nothing = f"No jobs in namespace {api.namespace} of {api.server}"
        print_jobs(rows, notes, nothing=nothing, title=f"Namespace {api.namespace}")
    return job_facts(rows, namespace=api.namespace)


def job_rows(api: KubernetesApi) -> list[tuple[tuple[str, ...], Condition]]:
    """The values of ``JOB_COLUMNS`` and the condition of each job in a namespace, the oldest first."""
    jobs = jobs_in(api)
    ours = {NAME_LABEL: "elasticdl", MANAGED_BY_LABEL: "elasticdl"}
    masters = api.list(POD, labels=selector(ours | {COMPONENT_LABEL: Service.MASTER.value})).items
    submissions = {each["metadata"]["name"]: each for each in api.list(CONFIG_MAP, labels=selector(ours)).items}
    found = []
    for job in jobs:
        name = job["metadata"]["name"]
        condition = condition_of(job, [pod for pod in masters if pod["metadata"]["labels"].get(JOB_LABEL) == name])
        found.append((_row(job, condition, submissions), condition))
    return found


def reason_of(condition: Condition) -> str:
    """Why no master of a job runs, or why it has failed without a master that said so on its log; else empty."""
    return condition.waiting or ("" if condition.message.startswith(FAILED_BY_MASTER) else condition.message)


def _row(job: Manifest, condition: Condition, submissions: dict[str, Manifest]) -> tuple[str, ...]:
    name = job["metadata"]["name"]
    submitted = job["metadata"]["creationTimestamp"].replace("T", " ")[:16]
    content = submissions.get(name, {}).get("data") or {}
    flags = json.loads(content.get(SUBMISSION_FILE, "{}")).get("flags", {})
    model = PurePosixPath(flags.get("model_def", "").rpartition(":")[0]).name
    data = next((flags[flag] for flag in PATH_FLAGS if flag in flags), "")
    return name, condition.state, submitted, model, data
