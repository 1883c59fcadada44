"""What child processes find in their environment."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from elasticdl.cli.jobs.run_directory import RunDirectory
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.process import running_batches as running_batches
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

_SETTINGS: Mapping[Service, type[ProcessSettings]] = {
    Service.MASTER: MasterSettings,
    Service.PS: PsSettings,
    Service.WORKER: WorkerSettings,
}


def threads_each(processes: int, cores: int | None = None) -> int:
    """Computing threads for each of several processes on this machine, at least one.

    Args:
        processes: how many compute at the same time.
        cores: processor cores; those that this process may use when not given.
    """
    available = cores if cores is not None else len(os.sched_getaffinity(0))
    return max(1, available // max(1, processes))


def job_environment(
    base: Mapping[str, str], spec: JobSpec, run: RunDirectory, token: str
) -> Callable[[str, PodName, Service], dict[str, str]]:
    """(URL of the broker, pod, service) -> the environment of that process.

    Later ones beat earlier ones: our defaults, the launcher's own environment, settings that follow from the job,
    ``--envs``. All other settings may be in the launcher's environment.

    Args:
        base: the launcher's own environment.
        spec: the job.
        run: its folder.
        token: what the job's processes show each other on the wire.
    """
    threads = threads_each(spec.workers + spec.ps)
    defaults = {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # Errors only: the rest is about the machine, not about the job.
        "CUDA_VISIBLE_DEVICES": "-1",  # Without it TensorFlow looks for GPUs for a second.
        "NUMBA_CACHE_DIR": str(_cache_folder(base) / "numba"),
        **dict.fromkeys(_THREADS + _TENSORFLOW_THREADS, str(threads)),
    }
    # A traceback at a crash, and lines that reach the log file before one.
    always = {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}

    def environment(nats_url: str, pod: PodName, service: Service) -> dict[str, str]:
        dictated = _dictated(spec, run, service, threads, nats_url=nats_url, pod=pod, token=token)
        own = to_environment(_SETTINGS[service](**dictated))
        settings = {name: value for name, value in own.items() if name in map(variable, dictated) or name not in base}
        if service is Service.MASTER:
            return {**defaults, **base, **always, **settings}
        settings[running_batches.ENVIRONMENT_VARIABLE] = str(run.running_batches / pod)
        return {**defaults, **base, **always, **settings, **spec.envs}

    return environment


def _dictated(spec: JobSpec, run: RunDirectory, service: Service, threads: int, **names: str) -> dict[str, Any]:
    """The settings that follow from the job."""
    dictated = {
        **names,
        "job": spec.job,
        "run_dir": str(run.path),
        "log_level": spec.log_level,
        "lease_s": spec.limits.lease_s,
    }
    return dictated | ({"compute_threads": threads} if service is Service.WORKER else {})


def _cache_folder(base: Mapping[str, str]) -> Path:
    """Where this user's caches are kept; a private temporary folder where there is no home to write to."""
    cache = Path(base.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"elasticdl-{os.getuid()}"
    return cache
