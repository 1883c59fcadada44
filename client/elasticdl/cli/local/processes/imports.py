"""What a process needs to import a service: its command line, and the environment variables that imports read.

The launcher imports this module before all others, to start the imports of the services as early as possible.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from elasticdl.shared.names import Service
from elasticdl.shared.process.keras_backend import KERAS_BACKEND, TENSORFLOW

MODULES: Mapping[Service, str] = {
    Service.MASTER: "elasticdl.master.main",
    Service.PS: "elasticdl.ps.main",
    Service.WORKER: "elasticdl.worker.main",
}
"""What ``python -m`` runs for each service."""

_THREADS = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TENSORFLOW_THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS")

HASH_SEEDS = 1 << 32
"""How many values ``PYTHONHASHSEED`` can have. All processes of a job need the same one: the order of a set of strings,
which may be a vocabulary, depends on it."""


def module_command(module: str) -> list[str]:
    """The command line of a module. The user's ``json.py`` in the working directory is not imported as ``json``."""
    return [sys.executable, "-P", "-m", module]


def service_command(service: Service) -> list[str]:
    """The command line of a service; its settings are in its environment."""
    return module_command(MODULES[service])


def threads_each(processes: int, cores: int | None = None) -> int:
    """Compute threads per process, at least one; ``cores``: if not given, the CPU cores that this process may use."""
    available = cores if cores is not None else len(os.sched_getaffinity(0))
    return max(1, available // max(1, processes))


def import_environment(base: Mapping[str, str], *, processes: int, seed: int) -> dict[str, str]:
    """The environment of a process that imports a service, before it has the settings of the service.

    In ascending priority: our defaults, the launcher's environment, what all processes of a job need.
    """
    return {**import_defaults(threads_each(processes)), **numba_cache(base), **base, **import_constants(seed)}


def numba_cache(base: Mapping[str, str]) -> dict[str, str]:
    """The variable that names the folder in which numba keeps what it has compiled."""
    return {"NUMBA_CACHE_DIR": str(_cache_folder(base) / "numba")}


def use_numba_cache() -> None:
    """Have this process use that folder once it imports numba: the ps have compiled there what takes half a minute."""
    os.environ.update(numba_cache(os.environ) | dict(os.environ))


def import_defaults(threads: int, *, hides_gpus: bool = True) -> dict[str, str]:
    """Variables that a user may set to something else.

    Args:
        hides_gpus: whether TensorFlow finds no GPU. To search for GPUs takes it a second.
    """
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"} if hides_gpus else {}
    return {
        "TF_CPP_MIN_LOG_LEVEL": "2",  # Errors only; TensorFlow's warnings are about the machine, not about the job.
        **hidden,
        **dict.fromkeys(_THREADS + _TENSORFLOW_THREADS, str(threads)),
    }


def import_constants(seed: int) -> dict[str, str]:
    """Variables that all processes of a job need as they are.

    Python prints a traceback at a crash, and log lines are written at once, before a crash can lose them. Workers train
    with TensorFlow, also where Keras is set to another backend for everything else that the user does.
    """
    return {
        "PYTHONFAULTHANDLER": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": str(seed % HASH_SEEDS),
        KERAS_BACKEND: TENSORFLOW,
    }


def _cache_folder(base: Mapping[str, str]) -> Path:
    """The user's cache folder; a private temporary folder if it can't be created."""
    cache = Path(base.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"elasticdl-{os.getuid()}"
    return cache
