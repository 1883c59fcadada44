"""``elasticdl dashboard``: serves the dashboard to the browsers of this machine."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from elasticdl.cli.display.consoles import plain_console
from elasticdl.cli.jobs import run_directory
from elasticdl.cli.jobs.handle import ReadableJob
from elasticdl.cli.jobs.local_handle import shown_state
from elasticdl.cli.kubernetes.handle import KubernetesJobHandle
from elasticdl.cli.kubernetes.listing import job_rows
from elasticdl.cli.kubernetes.lookup import connect, find_in
from elasticdl.cli.opening import open_readable, root_of
from elasticdl.dashboard.sources import JobRow, Jobs, JobSource
from elasticdl.shared.errors import UserError
from elasticdl.shared.kubernetes.api import KubernetesApi
from elasticdl.shared.words import minute

LOOPBACK = "127.0.0.1"
VARIABLE = "ELASTICDL_DASHBOARD_TOKEN"
"""Environment variable with the token that pages need. Default: a random one each time."""


class HandleSource:
    """See ``JobSource``."""

    def __init__(self, handle: ReadableJob) -> None:
        self.job, self.open, self._condition = handle.job, handle.open, handle.condition

    def is_running(self) -> bool:
        """See ``JobSource``."""
        return self._condition().is_running


class NamedJobs:
    """See ``Jobs``: the jobs and files that the user has named."""

    are_in_cluster = False

    def __init__(self, handles: Mapping[str, ReadableJob]) -> None:
        self._handles = handles

    def rows(self) -> Sequence[JobRow]:
        """See ``Jobs``."""
        return [
            JobRow(key=key, job=handle.job, state=handle.condition().state) for key, handle in self._handles.items()
        ]

    def find(self, key: str) -> JobSource:
        """See ``Jobs``."""
        if key not in self._handles:
            raise UserError(f"this dashboard does not show {key}")
        return HandleSource(self._handles[key])


class LocalJobs:
    """See ``Jobs``: those of a folder of run directories."""

    are_in_cluster = False

    def __init__(self, root: Path) -> None:
        self._root = root

    def rows(self) -> Sequence[JobRow]:
        """See ``Jobs``."""
        found = []
        for run in run_directory.run_directories(self._root):
            try:
                record = run.read()
            except UserError:
                found.append(JobRow(key=run.job, job=run.job, state="damaged"))
                continue
            submitted = minute(record.created_s)
            model, state = Path(record.model.rpartition(":")[0]).name, shown_state(run, record)
            row = JobRow(
                key=run.job, job=run.job, state=state, submitted=submitted, model=model, data=record.training_data
            )
            found.append(row)
        return found[::-1]

    def find(self, key: str) -> JobSource:
        """See ``Jobs``."""
        if "/" in key:
            raise UserError(f"there is no job {key}")
        return HandleSource(open_readable(key, self._root, ""))


class NamespaceJobs:
    """See ``Jobs``: those of a namespace of Kubernetes whose objects are there."""

    are_in_cluster = True

    def __init__(self, api: KubernetesApi) -> None:
        self._api = api

    def rows(self) -> Sequence[JobRow]:
        """See ``Jobs``."""
        return [
            JobRow(key=job, job=job, state=state, submitted=submitted, model=model, data=data)
            for (job, state, submitted, model, data), _ in reversed(job_rows(self._api))
        ]

    def find(self, key: str) -> JobSource:
        """See ``Jobs``."""
        namespace, _, name = key.rpartition("/")
        api = self._api if namespace in ("", self._api.namespace) else connect(namespace)
        return HandleSource(KubernetesJobHandle(api, find_in(api, name), is_default=False))


def _jobs(names: Sequence[str], run_dir: Path | None, namespace: str) -> Jobs:
    if names:
        return NamedJobs({name: open_readable(name, run_dir, namespace) for name in names})
    return NamespaceJobs(connect(namespace)) if namespace else LocalJobs(root_of(run_dir))


def _bound(host: str, port: int) -> socket.socket:
    """A socket to serve at."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        hint = "--port=0 takes any that is free."
        raise UserError(f"can't serve at {host}:{port}: {error.strerror}", hint=hint) from error


def dashboard(
    names: Sequence[str], run_dir: Path | None, namespace: str, host: str, port: int, fleet: Path | None
) -> None:
    """Serve until Ctrl-C; port 0: any that is free."""
    try:
        import uvicorn

        from elasticdl.cli.commands.fleet.fleet_file import FleetFile
        from elasticdl.dashboard.app import LOOPBACK_HOSTS, Dashboard
        from elasticdl.dashboard.server import Server
    except ImportError as error:
        raise UserError(
            f"the dashboard needs the package {error.name}", hint="Install it: pip install 'elasticdl[dashboard]'."
        ) from error
    jobs = _jobs(names, run_dir, namespace)
    only = names[0] if len(names) == 1 and not fleet else ""
    given = os.environ.get(VARIABLE, "")
    token = given or secrets.token_urlsafe(16)
    is_local = host in (LOOPBACK, "localhost", "::1")
    hosts = LOOPBACK_HOSTS if is_local else frozenset[str]()
    board = Dashboard(jobs, token, only=only, hosts=hosts, fleet=FleetFile(fleet) if fleet else None)
    config = uvicorn.Config(board.app(), log_level="warning", access_log=False, timeout_graceful_shutdown=1)
    with _bound(host, port) as bound:
        host, port = bound.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        console = plain_console()
        console.print(f"The dashboard is at http://{shown}:{port}/?token={f'${VARIABLE}' if given else token}")
        console.print("Everyone with this address can look and change nothing. The dashboard ends with this command.")
        Server(config).run(sockets=[bound])
