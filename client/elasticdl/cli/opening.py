"""Finds the job that a command is about: in the run directory of this machine, or in a cluster."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from elasticdl.shared.errors import UserError

if TYPE_CHECKING:
    from elasticdl.cli.jobs.handle import JobHandle, ReadableJob
    from elasticdl.cli.jobs.run_directory import RunDirectory
    from elasticdl.cli.kubernetes.handle import KubernetesJobHandle


def root_of(run_dir: Path | None) -> Path:
    """The folder of run directories."""
    from elasticdl.cli.jobs.run_directory import default_root

    return run_dir.expanduser().absolute() if run_dir else default_root(os.environ)


def open_job(job: str, run_dir: Path | None, namespace: str) -> JobHandle:
    """The job on this machine; otherwise, or if a namespace is given, the job in the cluster."""
    from elasticdl.cli.jobs.local_handle import LocalJobHandle

    found = _find_run(job, run_dir, namespace)
    return LocalJobHandle(found) if found else _find_in_cluster(job, namespace)


def open_readable(job: str, run_dir: Path | None, namespace: str) -> ReadableJob:
    """Like ``open_job``, for commands that only inspect: ``job`` may also be a file with an exported event log."""
    path = Path(job).expanduser()
    if path.is_file():
        from elasticdl.cli.jobs.exported import ExportedJobHandle

        return ExportedJobHandle(path)
    if "/" in job:
        raise UserError(f"there is no file {job}", hint="Give the id of a job, its name, or an exported event log.")
    return open_job(job, run_dir, namespace)


def cluster_job(job: str, run_dir: Path | None, namespace: str) -> KubernetesJobHandle | None:
    """The job in the cluster; None: it is on this machine, and has ended. The arguments are those of ``open_job``.

    A running job of this machine is refused at once, because the imports of some commands take seconds.

    Raises:
        UserError: no job matches, several do, or the job of this machine is running.
    """
    found = _find_run(job, run_dir, namespace)
    if found is None:
        return _find_in_cluster(job, namespace)
    if found.is_launched(found.read()):
        raise found.in_use()
    return None


def _find_run(job: str, run_dir: Path | None, namespace: str) -> RunDirectory | None:
    """The job's folder on this machine; None: the job is in the cluster, if anywhere."""
    from elasticdl.cli.jobs.run_directory import find
    from elasticdl.cli.kubernetes.lookup import has_cluster

    if namespace:
        return None
    try:
        return find(root_of(run_dir), job)
    except UserError:
        if Path(job).expanduser().is_file():
            hint = f"It can be inspected, with elasticdl status {job} and the like. Name the job itself here."
            raise UserError(f"{job} is a file, not a job", hint=hint, usage=True) from None
        if run_dir or not has_cluster(os.environ):
            raise
        return None


def _find_in_cluster(job: str, namespace: str) -> KubernetesJobHandle:
    from elasticdl.cli.kubernetes.lookup import find_job

    return find_job(job, namespace)
