"""The pods and Jobs of a namespace, without a cluster, and with requests that take as long as a test wants."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from copy import deepcopy

from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.api import Change, KubernetesApi, ObjectList
from elasticdl.shared.kubernetes.kinds import Kind, Manifest
from elasticdl.shared.kubernetes.refusals import ApiRefusedError, Request


class MemoryApi(KubernetesApi):
    """See above; it knows no other objects, and ignores selectors."""

    def __init__(self) -> None:
        self.namespace = "team"
        self.objects: dict[str, Manifest] = {}
        self.jobs: dict[str, Manifest] = {}
        self.has_lost_rights = False
        """Patches are refused."""
        self.logs: dict[str, str] = {}
        """Container -> its log."""
        self.refusals: list[ElasticDLError] = []
        """The next creations fail with these."""
        self.is_asked = threading.Event()
        """A creation has arrived."""
        self.may_create = threading.Event()
        """Creations are executed."""
        self.may_create.set()
        self._changes: queue.Queue[Change] = queue.Queue()
        self._versions = 0

    def create(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        assert not dry_run
        self.is_asked.set()
        assert self.may_create.wait(DEADLINE_S)
        if self.refusals:
            raise self.refusals.pop(0)
        return self.appear(manifest)

    def appear(self, manifest: Manifest) -> Manifest:
        """A pod is created."""
        self._versions += 1
        created = deepcopy(manifest)
        created["metadata"] |= {"uid": f"uid-{self._versions}", "resourceVersion": str(self._versions)}
        self.objects[created["metadata"]["name"]] = created
        self._changes.put(Change(type="ADDED", object=created))
        return created

    def get(self, kind: Kind, name: str) -> Manifest:
        assert kind is kinds.JOB
        if name not in self.jobs:
            raise ApiRefusedError(Request(verb="get", kind=kind, name=name), status=404, reason="NotFound", detail="")
        return deepcopy(self.jobs[name])

    def patch(self, kind: Kind, name: str, patch: Manifest, *, subresource: str = "") -> Manifest:
        assert kind is kinds.JOB
        if self.has_lost_rights:
            raise ApiRefusedError(
                Request(verb="patch", kind=kind, name=name), status=403, reason="Forbidden", detail="cannot patch"
            )
        self.jobs[name]["spec"] |= patch["spec"]
        return deepcopy(self.jobs[name])

    def is_allowed(self, verb: str, kind: Kind, *, subresource: str = "") -> bool:
        return verb != "patch" or not self.has_lost_rights

    def list(self, kind: Kind, *, labels: str = "", fields: str = "", everywhere: bool = False) -> ObjectList:
        return ObjectList(items=tuple(self.objects.values()), resource_version=str(self._versions))

    def watch(
        self,
        kind: Kind,
        resource_version: str,
        *,
        labels: str = "",
        fields: str = "",
        everywhere: bool = False,
        timeout_s: int = 0,
    ) -> Iterator[Change]:
        yield self._changes.get()

    def delete(self, kind: Kind, name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        if name in self.objects and self.objects[name]["metadata"]["uid"] == uid:
            self._changes.put(Change(type="DELETED", object=self.objects.pop(name)))

    def log(self, pod: str, *, container: str = "", tail_lines: int | None = None, bytes_max: int | None = None) -> str:
        return self.logs.get(container, "")

    def close(self) -> None:
        """There is no connection."""
