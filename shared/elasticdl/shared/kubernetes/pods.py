"""``KubernetesPods``: the pods of a job on a cluster, created and watched through the API server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from elasticdl.shared.errors import PermanentError, TransientError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import Change, KubernetesApi
from elasticdl.shared.kubernetes.job_pods import creation_seq_of
from elasticdl.shared.kubernetes.kinds import Manifest
from elasticdl.shared.kubernetes.names import POD_LABEL, labels, pod_object_name, selector, without_pod_folders
from elasticdl.shared.kubernetes.pod_manifests import ClusterJob, memory_limits, memory_raises, pod_manifest
from elasticdl.shared.kubernetes.pod_status import status_of
from elasticdl.shared.kubernetes.refusals import ApiRefusedError
from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.names import PodInstance, PodName, Service
from elasticdl.shared.pods.log_lines import EXPLAINED, explaining_lines, readable_lines
from elasticdl.shared.pods.ports import Ended, Pending, PodStatus
from elasticdl.shared.pods.table import PodTable
from elasticdl.shared.process.exit_codes import EXIT_REFUSED
from elasticdl.shared.process.logs import get_logger

QUOTA_RETRY_S = 5.0
LOG_TAIL_LINES = 200
LOG_TAIL_BYTES = 1 << 18

_log = get_logger()


class KubernetesPods:
    """See ``Pods``; all methods are called on the loop's thread, and wait for the API server on other threads.

    The latest pod of each name stays when it has ended, so that its log can be read, until a later one exists.

    Args:
        quota_retry_s: seconds between two attempts to create a pod for which the namespace has no quota left.
    """

    def __init__(self, api: KubernetesApi, job: ClusterJob, quota_retry_s: float = QUOTA_RETRY_S) -> None:
        self._api = api
        self._job = job
        self._quota_retry_s = quota_retry_s
        self._selector = selector(labels(job.job), POD_LABEL)
        self._table = PodTable()
        self._objects: dict[PodName, Manifest] = {}
        """The latest pod of each name, as the API server has described it last."""
        self._ends: dict[PodInstance, PodStatus] = {}
        """How the pods in ``_objects`` ended; kept, because an end does not change, and its log is read only once."""
        self._raises: dict[Service, int] = dict.fromkeys(Service, 0)
        self._deleted: set[PodInstance] = set()
        self._waiting_for_quota: dict[PodName, int] = {}
        """The orders whose pods the namespace has no quota for."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_listed = False
        self._watch = object()
        """Identifies the present watch: what the threads of former ones report is ignored."""

    async def create(self, pod: PodName, service: Service, creation_seq: int, *, is_spare: bool = False) -> PodStatus:
        """See ``Pods.create``. While the namespace has no quota left, the pod is pending and is tried again."""
        await self._ensure_listed()
        latest = self._table.get(pod)
        if latest and not self._table.admits(pod, creation_seq):
            return latest
        raises = self._memory_raises(service)
        manifest = pod_manifest(self._job, pod, service, creation_seq, raises, is_spare=is_spare)
        return await self._create(
            PodStatus(pod=pod, service=service, creation_seq=creation_seq, phase=Pending(reason="")), manifest
        )

    async def delete(self, pod: PodName, instance: PodInstance, before_seq: int, *, kill: bool) -> None:
        """See ``Pods.delete``."""
        await self._ensure_listed()
        status = self._table.to_delete(pod, instance, before_seq)
        if status is None:
            return
        if self._waiting_for_quota.pop(pod, None):
            self._table.set(replace(status, phase=Ended(cause=ExitCause.STOPPED)))
            return
        self._deleted.add(status.instance)
        await self._delete(status, grace_s=0 if kill else None)

    async def list(self) -> Sequence[PodStatus]:
        """See ``Pods.list``."""
        resource_version = await self._refresh()
        statuses = self._table.list()
        self._watch = watch = object()
        arguments = (asyncio.get_running_loop(), watch, resource_version)
        threading.Thread(target=self._follow, args=arguments, daemon=True, name="watch of pods").start()
        return statuses

    def watch(self) -> AsyncIterator[PodStatus]:
        """See ``Pods.watch``."""
        return self._table.watch()

    def close(self) -> None:
        """Stop watching, and forget pods that wait for quota."""
        self._watch = object()
        for task in self._tasks:
            task.cancel()

    # --- objects ----------------------------------------------------------------------------------------------------

    async def _create(self, status: PodStatus, manifest: Manifest) -> PodStatus:
        former = self._objects.get(status.pod)
        try:
            created = await asyncio.to_thread(self._create_or_get, manifest)
        except ApiRefusedError as error:
            if error.is_quota:
                return self._wait_for_quota(status, manifest, error)
            phase = Ended(cause=ExitCause.REFUSED, exit_code=EXIT_REFUSED, log_tail=str(error))
            status = replace(status, phase=phase)
        else:
            if self._is_superseded(created):  # The command was withdrawn while the request was on its way.
                self._remove_late(created)
                return self._table.get(status.pod) or status
            status = await asyncio.to_thread(self._status, created)
            self._objects[status.pod] = created
        self._table.set(status)
        if former and former["metadata"]["uid"] != status.instance:
            self._remove(former)
        return status

    def _create_or_get(self, manifest: Manifest) -> Manifest:
        try:
            return self._api.create(manifest)
        except ApiRefusedError as error:
            if error.already_exists:  # The command was executed before.
                return self._api.get(kinds.POD, manifest["metadata"]["name"])
            raise

    def _wait_for_quota(self, status: PodStatus, manifest: Manifest, refusal: ApiRefusedError) -> PodStatus:
        status = replace(status, phase=Pending(reason=refusal.detail))
        self._table.set(status)
        if self._waiting_for_quota.get(status.pod) != status.creation_seq:
            self._waiting_for_quota[status.pod] = status.creation_seq
            self._spawn(self._create_later(status, manifest))
        return status

    async def _create_later(self, status: PodStatus, manifest: Manifest) -> None:
        """Create a pod as soon as there is quota for it."""
        while True:
            await asyncio.sleep(self._quota_retry_s)
            if self._waiting_for_quota.get(status.pod) != status.creation_seq:
                return  # The pod was deleted.
            try:
                latest = await self._create(status, manifest)
            except (TransientError, PermanentError) as error:
                _log.warning("pod not created yet", pod=status.pod, reason=str(error))
                continue
            if latest.instance or isinstance(latest.phase, Ended):
                if self._waiting_for_quota.get(status.pod) == status.creation_seq:
                    del self._waiting_for_quota[status.pod]
                return

    async def _delete(self, status: PodStatus, grace_s: int | None) -> None:
        name = pod_object_name(self._job.job, status.pod, status.creation_seq)
        try:
            await asyncio.to_thread(self._api.delete, kinds.POD, name, uid=status.instance, grace_s=grace_s)
        except ApiRefusedError as error:
            if not (error.is_not_found or error.is_conflict):
                raise

    def _remove(self, superseded: Manifest) -> None:
        """Remove a pod that is not the latest one of its name."""
        status = status_of(superseded)
        self._ends.pop(status.instance, None)
        self._deleted.discard(status.instance)
        self._spawn(self._delete(status, grace_s=0))

    def _remove_late(self, superseded: Manifest) -> None:
        """Remove a pod that appeared after its command was withdrawn. An ended one stays, so its log can be read."""
        if "deletionTimestamp" not in superseded["metadata"] and not isinstance(status_of(superseded).phase, Ended):
            self._remove(superseded)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        async def run() -> None:
            try:
                await coroutine
            except (TransientError, PermanentError) as error:
                _log.warning("pod not removed", reason=str(error))  # The next list removes it.

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _memory_raises(self, service: Service) -> int:
        """How often the memory of a service is raised in new pods: once more than in any that ran out of it."""
        for status in self._table.list():
            pod = self._objects.get(status.pod)
            if status.service is service and pod is not None and pod["metadata"]["uid"] == status.instance:
                has_run_out = isinstance(status.phase, Ended) and status.phase.cause is ExitCause.OUT_OF_MEMORY
                self._raises[service] = max(self._raises[service], memory_raises(pod) + has_run_out)
        return self._raises[service]

    # --- changes ----------------------------------------------------------------------------------------------------

    async def _ensure_listed(self) -> None:
        """Know the pods of a former master before a command is executed."""
        if not self._is_listed:
            await self._refresh()

    async def _refresh(self) -> str:
        """Read all pods; returns the moment from which a watch can continue."""
        listed = await asyncio.to_thread(self._api.list, kinds.POD, labels=self._selector)
        latest: dict[PodName, Manifest] = {}
        for found in sorted(listed.items, key=creation_seq_of):
            name = PodName(found["metadata"]["labels"][POD_LABEL])
            if name in latest:
                self._remove(latest[name])
            latest[name] = found
        statuses = await asyncio.to_thread(lambda: [self._status(each) for each in latest.values()])
        for former in self._table.list():
            if former.pod in latest or former.pod in self._waiting_for_quota or isinstance(former.phase, Ended):
                continue
            if former.instance in self._deleted:
                self._table.set(replace(former, phase=Ended(cause=ExitCause.STOPPED)))
            else:
                self._table.remove(former.pod)
        for status in statuses:
            if self._is_superseded(latest[status.pod]):
                self._remove_late(latest[status.pod])
            else:
                self._table.set(status)
        self._objects = latest
        self._is_listed = True
        return listed.resource_version

    def _follow(self, loop: asyncio.AbstractEventLoop, watch: object, resource_version: str) -> None:
        """Watch on a thread of its own, until there is another watch."""
        try:
            while watch is self._watch:
                for change in self._api.watch(kinds.POD, resource_version, labels=self._selector):
                    resource_version = change.resource_version
                    if watch is not self._watch:
                        return
                    if change.type != "BOOKMARK":
                        is_gone = change.type == "DELETED"
                        known = self._is_superseded(change.object)
                        status = None if known else self._status(change.object, is_gone=is_gone)
                        loop.call_soon_threadsafe(self._on_change, watch, change, status)
        except (
            Exception
        ) as error:  # The outermost frame of the thread: without a watch the master does not see pods end.
            loop.call_soon_threadsafe(self._on_broken, watch, error)

    def _on_change(self, watch: object, change: Change, status: PodStatus | None) -> None:
        if watch is not self._watch:
            return
        if status is None or self._is_superseded(change.object):
            if change.type != "DELETED":
                self._remove_late(change.object)
            return
        self._objects[status.pod] = change.object
        self._table.set(status)

    def _is_superseded(self, pod: Manifest) -> bool:
        """Whether a later command created a pod of this name, or the pod of its own command has ended."""
        latest = self._table.get(PodName(pod["metadata"]["labels"][POD_LABEL]))
        if latest is None or latest.creation_seq != creation_seq_of(pod):
            return latest is not None and latest.creation_seq > creation_seq_of(pod)
        return isinstance(latest.phase, Ended) and latest.instance != pod["metadata"]["uid"]

    def _on_broken(self, watch: object, error: Exception) -> None:
        if watch is self._watch:
            self._table.break_watch(str(error) or type(error).__name__)

    def _status(self, pod: Manifest, *, is_gone: bool = False) -> PodStatus:
        """The status of a pod, with the end of its log if that explains its exit; not for the loop's thread."""
        instance = PodInstance(pod["metadata"]["uid"])
        if known := self._ends.get(instance):
            return known
        status = status_of(
            pod,
            is_deleted=instance in self._deleted,
            is_gone=is_gone,
            image_pull_s=self._job.templates.image_pull_s,
        )
        if isinstance(status.phase, Ended):
            ended = self._explained(pod, status, status.phase)
            if ended.cause is ExitCause.OUT_OF_MEMORY:
                limit, raised = memory_limits(pod, status.service, self._job.templates.memory_raises_max)
                ended = replace(ended, memory_limit_bytes=limit, next_memory_limit_bytes=raised)
            status = replace(status, phase=ended)
            self._ends[instance] = status
        return status

    def _explained(self, pod: Manifest, status: PodStatus, ended: Ended) -> Ended:
        if ended.log_tail or ended.cause not in EXPLAINED:
            return ended
        name = pod["metadata"]["name"]
        try:
            log = self._api.log(
                name, container=status.service.value, tail_lines=LOG_TAIL_LINES, bytes_max=LOG_TAIL_BYTES
            )
        except (TransientError, PermanentError) as error:
            _log.warning("the log of a pod can't be read", pod=name, reason=str(error))
            return ended
        tail = explaining_lines(readable_lines(log.splitlines()), ended.cause)
        return replace(ended, log_tail=without_pod_folders(tail))
