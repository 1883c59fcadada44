"""A job on a kwok cluster: the shipped master, the pods that it creates, and clients that speak for their processes."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from benchmarks.control_plane.connection import Connection
from benchmarks.control_plane.processes import (
    Identity,
    Load,
    Process,
    Ps,
    Totals,
    Worker,
    job_spec,
    send_heartbeats,
)
from tests.cluster.kwok.control_plane import MASTER as MASTER_USER
from tests.cluster.kwok.control_plane import ControlPlane
from tests.deadline import DEADLINE_S

from elasticdl.cli.kubernetes.manifests.resources import parse_resources
from elasticdl.cli.kubernetes.manifests.templates import JobSettings, PodSettings, service_template
from elasticdl.shared.bus import nats_bus
from elasticdl.shared.bus.nats_bus import NatsBus
from elasticdl.shared.errors import TransientError
from elasticdl.shared.job.credits import ps_set_digest
from elasticdl.shared.job.spec import JobSpec
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import Change, KubernetesApi
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import COMPONENT_LABEL, POD_LABEL, labels, selector
from elasticdl.shared.kubernetes.templates import PodTemplates
from elasticdl.shared.messages.events import Event, JobSubmitted, LogRecord
from elasticdl.shared.names import (
    LAUNCHER,
    MASTER,
    Incarnation,
    JobId,
    PodInstance,
    PodName,
    Purpose,
    Service,
    new_incarnation,
)
from elasticdl.shared.process.settings import MasterSettings, to_environment

IMAGE = "localhost/none:1"
POLL_S = 0.1
HEARTBEAT_TIMEOUT_S = 60.0
"""Tests run on busy machines, and no test here is about lost processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSize:
    """What a job asks for.

    Attributes:
        workers: their number; there is one ps.
        resources: of a worker, as ``--worker_resource_request``.
        task_s: mean seconds that a task takes.
    """

    workers: int
    resources: str
    task_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """The process of a running pod."""

    process: Ps | Worker
    load: Load


class SimulatedJob:
    """A job whose pods have a process from the moment at which kwok says that they run, until they are deleted.

    Args:
        api: the cluster, with the rights of an administrator.
        bus: of the job.
        connection: for the simulated processes.
        spec: the job.
        size: what it asks for.
    """

    def __init__(self, api: KubernetesApi, bus: NatsBus, connection: Connection, spec: JobSpec, size: JobSize) -> None:
        self.api = api
        self.bus = bus
        self.spec = spec
        self.run = new_incarnation()
        self.master: psutil.Popen
        self._connection = connection
        self._size = size
        self._members: dict[PodInstance, _Member] = {}
        self._selector = selector(labels(spec.job), POD_LABEL)
        self._loop = asyncio.get_running_loop()
        self._user = Process(
            connection, spec, Identity(service=Service.LAUNCHER, name=LAUNCHER, incarnation=self.run), Totals()
        )

    @property
    def workers(self) -> dict[PodName, Worker]:
        """The running workers."""
        return {each.process.name: each.process for each in self._members.values() if isinstance(each.process, Worker)}

    def publish(self, event: Event) -> None:
        """Append an event that a user causes."""
        self._user.append(event)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while not holds():
                    assert self.master.poll() is None, "the master has ended"
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise AssertionError(f"not within {DEADLINE_S:g} s: {what}; {len(self.workers)} workers run") from None

    async def record(self, is_it: Callable[[LogRecord], bool]) -> LogRecord:
        """Wait for a record of the log."""
        async with asyncio.timeout(DEADLINE_S):
            async for record in self.bus.log.read(0):
                if is_it(record):
                    return record
        raise AssertionError("the log ended")

    async def records(self) -> list[LogRecord]:
        """The log so far."""
        last, found = await self.bus.log.last_seq(), []
        async for record in self.bus.log.read(0):
            found.append(record)
            if record.seq >= last:
                break
        return found

    def processes(self) -> list[Process]:
        """All processes of running pods."""
        return [each.process for each in self._members.values()]

    async def start(self) -> None:
        """Follow the pods, and submit the job."""
        listed = await asyncio.to_thread(self.api.list, kinds.POD, labels=self._selector)
        threading.Thread(
            target=self._follow, args=(listed.resource_version,), daemon=True, name="simulated pods"
        ).start()
        self.publish(JobSubmitted(spec=self.spec))

    def _follow(self, resource_version: str) -> None:
        """Watch on a thread of its own, until the API server ends."""
        while True:
            try:
                for change in self.api.watch(kinds.POD, resource_version, labels=self._selector):
                    resource_version = change.resource_version
                    if change.type != "BOOKMARK":
                        self._loop.call_soon_threadsafe(self._on_change, change)
            except (TransientError, RuntimeError):  # The test has ended.
                return

    def _on_change(self, change: Change) -> None:
        metadata = change.object["metadata"]
        instance = PodInstance(metadata["uid"])
        if change.type == "DELETED" or "deletionTimestamp" in metadata:
            if member := self._members.pop(instance, None):
                member.load.is_over = True
        elif change.object["status"]["phase"] == "Running" and instance not in self._members:
            service = Service(metadata["labels"][COMPONENT_LABEL])
            name = PodName(metadata["labels"][POD_LABEL])
            self._begin(Identity(service=service, name=name, instance=instance, run=self.run))

    def _begin(self, identity: Identity) -> None:
        load = Load(task_s=self._size.task_s, later=self._loop.call_later)
        kind = Ps if identity.service is Service.PS else Worker
        process = kind(self._connection, self.spec, identity, Totals(), load)
        self._members[identity.instance] = _Member(process=process, load=load)
        if isinstance(process, Ps):
            process.start()
            for worker in self.workers.values():
                self._train(worker)
        else:
            process.declare()
            self._train(process)

    def _train(self, worker: Worker) -> None:
        """A worker begins to take tasks, if the ps runs."""
        ps = {each.name: each.incarnation for each in self.processes() if isinstance(each, Ps)}
        if ps:
            worker.start(ps_set_digest(ps))


@asynccontextmanager
async def simulated_job(
    plane: ControlPlane, nats_url: str, folder: Path, name: str, size: JobSize
) -> AsyncIterator[SimulatedJob]:
    """Run a job until the end of the block.

    Args:
        plane: the cluster.
        nats_url: of the NATS server.
        folder: for the master's files.
        name: of the job.
        size: what it asks for.
    """
    spec = job_spec(size.workers, 1, JobId(name))
    bus = await nats_bus.connect(nats_url, spec.job)  # Makes the streams.
    await bus.tasks.take((Purpose.TRAIN,))  # Makes the consumers.
    connection = await Connection.open(nats_url)
    with closing(KubernetesApi.connect(kubeconfig=str(plane.kubeconfig()))) as api:
        job = SimulatedJob(api, bus, connection, spec, size)
        api.create(_batch_job(spec.job))
        heartbeats = asyncio.create_task(send_heartbeats(job.processes))
        try:
            with _master(plane, nats_url, folder, job, size):
                yield job
        finally:
            heartbeats.cancel()
            for member in job._members.values():
                member.load.is_over = True
            connection.close()
            await bus.close()


@contextmanager
def _master(plane: ControlPlane, nats_url: str, folder: Path, job: SimulatedJob, size: JobSize) -> Iterator[None]:
    templates = folder / f"{job.spec.job}.json"
    templates.write_text(_templates(job.spec.job, job.run, size).to_json())
    settings = MasterSettings(
        nats_url=nats_url,
        job=job.spec.job,
        pod=MASTER,
        pod_templates=str(templates),
        heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
    )
    environment = os.environ | to_environment(settings) | {"KUBECONFIG": str(plane.kubeconfig(MASTER_USER))}
    with (folder / f"{job.spec.job}-master.log").open("wb") as log:
        job.master = psutil.Popen([sys.executable, "-m", "elasticdl.master.main"], env=environment, stderr=log)
        try:
            yield
        finally:
            job.master.kill()
            job.master.wait()


def _templates(job: JobId, run: Incarnation, size: JobSize) -> PodTemplates:
    """The templates that ``elasticdl train`` makes."""
    settings = JobSettings(job=job, run=run, seed=1, log_level="info")
    requests = {Service.WORKER: size.resources, Service.PS: "cpu=1,memory=1Gi"}
    found = {
        service: service_template(
            settings,
            PodSettings(service=service, image=IMAGE, resources=parse_resources(service.value, request, "")),
        )
        for service, request in requests.items()
    }
    return PodTemplates(worker=found[Service.WORKER], ps=found[Service.PS])


def _batch_job(job: JobId) -> Manifest:
    """The owner of the pods. Nothing creates a pod for it."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "master", "image": IMAGE}]}}
    metadata = {"name": str(job), "labels": labels(job)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
