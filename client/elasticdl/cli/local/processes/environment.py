"""The environment variables of child processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.cli.local.processes.imports import import_environment, threads_each
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process import running_batches
from elasticdl.shared.process.settings import (
    MasterSettings,
    ProcessSettings,
    PsSettings,
    WorkerSettings,
    to_environment,
    variable,
)

_SETTINGS: Mapping[Service, type[ProcessSettings]] = {
    Service.MASTER: MasterSettings,
    Service.PS: PsSettings,
    Service.WORKER: WorkerSettings,
}


def job_environment(
    base: Mapping[str, str], spec: JobSpec, run: RunDirectory, token: str, envs: Mapping[str, str]
) -> Callable[[str, PodName, Service], dict[str, str]]:
    """(URL of the NATS server, pod, service) -> the environment of that process.

    In ascending priority: ``import_environment``, settings that follow from the job, ``--envs``. All settings that do
    not follow from the job can be set in the launcher's environment.

    Args:
        envs: ``--envs``, with the secrets that the specification lacks.
    """
    processes = spec.processes
    imports = import_environment(base, processes=processes, seed=spec.plan.seed)

    def environment(nats_url: str, pod: PodName, service: Service) -> dict[str, str]:
        derived: dict[str, Any] = {
            "nats_url": nats_url,
            "pod": pod,
            "token": token,
            "job": spec.job,
            "run_dir": str(run.path),
            "log_level": spec.log_level,
            "lease_s": spec.limits.lease_s,
        }
        if service is Service.WORKER:
            derived["compute_threads"] = threads_each(processes)
        own = to_environment(_SETTINGS[service](**derived))
        settings = {name: value for name, value in own.items() if name in map(variable, derived) or name not in base}
        if service is Service.MASTER:
            return {**imports, **settings}
        settings[running_batches.ENVIRONMENT_VARIABLE] = str(run.running_batches / pod)
        return {**imports, **settings, **envs}

    return environment
