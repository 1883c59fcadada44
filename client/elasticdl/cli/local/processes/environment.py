"""The environment variables of child processes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.run_directory import RunDirectory
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

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TENSORFLOW_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

_HASH_SEEDS = 1 << 32
"""How many values ``PYTHONHASHSEED`` can have. All processes of a job need the same one: the order of a set of strings,
which may be a vocabulary, depends on it."""

_SETTINGS: Mapping[Service, type[ProcessSettings]] = {
    Service.MASTER: MasterSettings,
    Service.PS: PsSettings,
    Service.WORKER: WorkerSettings,
}


def threads_each(processes: int, cores: int | None = None) -> int:
    """Compute threads per process on this machine, at least one.

    Args:
        processes: how many compute at the same time.
        cores: CPU cores; those that this process may use if not given.
    """
    available = cores if cores is not None else len(os.sched_getaffinity(0))
    return max(1, available // max(1, processes))


def job_environment(
    base: Mapping[str, str], spec: JobSpec, run: RunDirectory, token: str
) -> Callable[[str, PodName, Service], dict[str, str]]:
    """(URL of the NATS server, pod, service) -> the environment of that process.

    In ascending priority: our defaults, the launcher's environment, settings that follow from the job, ``--envs``. All
    settings that do not follow from the job can be set in the launcher's environment.

    Args:
        base: the launcher's environment.
        spec: the job.
        run: its folder.
        token: shared secret of the job's processes.
    """
    threads = threads_each(spec.workers + spec.ps)
    defaults = {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # Errors only; TensorFlow's warnings are about the machine, not about the job.
        "CUDA_VISIBLE_DEVICES": "-1",  # Otherwise TensorFlow searches for GPUs, which takes a second.
        "NUMBA_CACHE_DIR": str(_cache_folder(base) / "numba"),
        **dict.fromkeys(_THREADS + _TENSORFLOW_THREADS, str(threads)),
    }
    # Print a traceback at a crash, and write log lines at once, before a crash can lose them.
    always = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": str(spec.plan.seed % _HASH_SEEDS)}

    def environment(nats_url: str, pod: PodName, service: Service) -> dict[str, str]:
        derived = _derived(spec, run, service, threads, nats_url=nats_url, pod=pod, token=token)
        own = to_environment(_SETTINGS[service](**derived))
        settings = {name: value for name, value in own.items() if name in map(variable, derived) or name not in base}
        if service is Service.MASTER:
            return {**defaults, **base, **always, **settings}
        settings[running_batches.ENVIRONMENT_VARIABLE] = str(run.running_batches / pod)
        return {**defaults, **base, **always, **settings, **spec.envs}

    return environment


def _derived(spec: JobSpec, run: RunDirectory, service: Service, threads: int, **names: str) -> dict[str, Any]:
    """The settings that follow from the job."""
    derived = {
        **names,
        "job": spec.job,
        "run_dir": str(run.path),
        "log_level": spec.log_level,
        "lease_s": spec.limits.lease_s,
    }
    return derived | ({"compute_threads": threads} if service is Service.WORKER else {})


def _cache_folder(base: Mapping[str, str]) -> Path:
    """The user's cache folder; a private temporary folder if it can't be created."""
    cache = Path(base.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"elasticdl-{os.getuid()}"
    return cache
