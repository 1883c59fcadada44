"""What can happen to the pods of a job and to the node that runs them."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from kubernetes.client.exceptions import ApiException
from tests.cluster import host
from tests.cluster.readiness import wait_until
from tests.cluster.sites import NODE_NAME, Site

from elasticdl.shared.kubernetes.names import COMPONENT_LABEL, JOB_LABEL, NAMESPACE_OBJECT, POD_LABEL
from elasticdl.shared.pod_instances import pid_of

SANDBOX = "pod"
"""The process that holds a pod's network, see ``node/pod``."""
API_PORT = 6443
LIMIT_S = 300.0
NATS_URL = "ELASTICDL_NATS_URL"
_TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSelector:
    """Names one pod of a namespace, whichever instance of it is there."""

    labels: str
    container: str

    @classmethod
    def of(cls, job: str, pod: str) -> PodSelector:
        """A pod of a job: ``master``, ``worker-0``, ``ps-1``."""
        label = COMPONENT_LABEL if pod == "master" else POD_LABEL
        return cls(labels=f"{JOB_LABEL}={job},{label}={pod}", container=pod.partition("-")[0])

    @classmethod
    def server(cls, name: str) -> PodSelector:
        """``nats`` or ``minio``."""
        return cls(labels=f"app.kubernetes.io/name={name}", container=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults of the pods of one namespace, and of the node.

    Attributes:
        core: a ``CoreV1Api``.
        namespace: of the pods.
        site: the node.
    """

    core: Any
    namespace: str
    site: Site

    # --- pods -------------------------------------------------------------------------------------------------------

    def uid(self, selector: PodSelector) -> str:
        """The uid of the latest pod; waits until there is one."""
        found: list[Any] = []

        def exists() -> bool:
            found[:] = self._pods(selector)
            return bool(found)

        wait_until(exists, lambda: f"there is no pod {selector.labels}", LIMIT_S)
        return str(found[-1].metadata.uid)

    def created_s(self, selector: PodSelector) -> float:
        """When the latest pod was created, in whole seconds since the epoch."""
        self.uid(selector)
        return float(self._pods(selector)[-1].metadata.creation_timestamp.timestamp())

    def delete(self, selector: PodSelector) -> None:
        """Delete a pod at once, as ``kubectl delete --force`` does."""
        self.uid(selector)
        name = self._pods(selector)[-1].metadata.name
        self.core.delete_namespaced_pod(name, self.namespace, grace_period_seconds=0)

    def kill(self, selector: PodSelector) -> None:
        """SIGKILL to the processes in the containers of a pod."""
        uid = self.uid(selector)
        for process in psutil.process_iter():
            try:
                if uid in Path(f"/proc/{process.pid}/cgroup").read_text() and process.name() != SANDBOX:
                    os.kill(process.pid, signal.SIGKILL)
            except (ProcessLookupError, FileNotFoundError, psutil.NoSuchProcess):
                continue

    def kill_child(self, selector: PodSelector) -> None:
        """SIGKILL to the processes that the first process of a container has started."""
        uid = self.uid(selector)
        for process in psutil.process_iter():
            with contextlib.suppress(FileNotFoundError, psutil.NoSuchProcess):
                parent = process.parent()
                if parent and all(uid in Path(f"/proc/{each.pid}/cgroup").read_text() for each in (process, parent)):
                    process.kill()

    def wait_for_replacement(self, selector: PodSelector, former: str) -> None:
        """Wait until the main container of a later pod is ready, or of the same pod if it was restarted in place."""

        def is_ready() -> bool:
            pods = self._pods(selector)
            return bool(pods) and pods[-1].metadata.uid != former and _is_ready(pods[-1], selector.container)

        wait_until(is_ready, lambda: f"there is no new pod {selector.labels}", LIMIT_S)

    def wait_until_ready(self, selector: PodSelector) -> None:
        """Wait until the main container of the latest pod is ready."""
        self.wait_for_replacement(selector, "")

    def wait_for_failed_init(self, selector: PodSelector) -> int:
        """Wait until an init container of the latest pod has failed; returns its exit code."""
        codes: list[int] = []

        def has_ended() -> bool:
            for pod in self._pods(selector)[-1:]:
                ended = [each.state.terminated for each in pod.status.init_container_statuses or ()]
                codes.extend(each.exit_code for each in ended if each and each.exit_code)
            return bool(codes)

        wait_until(has_ended, lambda: f"no init container of {selector.labels} fails", LIMIT_S)
        return codes[-1]

    @contextmanager
    def nats_url(self, url: str) -> Iterator[None]:
        """New pods connect to another URL."""
        before = self.core.read_namespaced_secret(NAMESPACE_OBJECT, self.namespace).data
        self._set_secret({NATS_URL: base64.b64encode(url.encode()).decode()})
        try:
            yield
        finally:
            self._set_secret({NATS_URL: before[NATS_URL]})

    def _set_secret(self, data: dict[str, str]) -> None:
        self.core.patch_namespaced_secret(NAMESPACE_OBJECT, self.namespace, {"data": data})

    # --- the node ---------------------------------------------------------------------------------------------------

    def kill_program(self, name: str) -> None:
        """SIGKILL to a program of the node; the node starts it again, as systemd does."""
        record = host.read_record(self.site)
        assert record is not None
        for program in psutil.Process(pid_of(record.instance)).children():
            if name in (*program.cmdline()[1:2], program.name()):
                program.kill()
                return
        raise LookupError(f"no program {name} runs on the node")

    def wait_for_node(self) -> None:
        """Wait until the API server answers and says that the node is ready."""

        def is_ready() -> bool:
            try:
                node = self.core.read_node(NODE_NAME, _request_timeout=2)
            except Exception:
                return False
            return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)

        wait_until(is_ready, lambda: "the node does not become ready", LIMIT_S)

    @contextmanager
    def api_unreachable(self) -> Iterator[None]:
        """Pods can't reach the API server: its connections break and new ones are refused."""
        pods = {pod.status.pod_ip for pod in self.core.list_namespaced_pod(self.namespace).items if pod.status.pod_ip}
        reject = ["-p", "tcp", "--dport", str(API_PORT), "-j", "REJECT", "--reject-with", "tcp-reset"]
        rules = [["INPUT", "-s", address, *reject] for address in sorted(pods)]
        for rule in rules:
            self._inside("iptables", "--insert", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self._inside("iptables", "--delete", *rule)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Cordon the node, evict all pods of the namespace, and uncordon it at the end: ``kubectl drain``."""
        self._cordon(is_cordoned=True)
        try:
            for pod in self.core.list_namespaced_pod(self.namespace).items:
                if pod.status.phase in ("Pending", "Running") and pod.spec.node_name:
                    self._evict(pod.metadata.name)
            wait_until(self._is_drained, lambda: "the node is not drained", LIMIT_S)
            yield
        finally:
            self._cordon(is_cordoned=False)

    def _cordon(self, *, is_cordoned: bool) -> None:
        self.core.patch_node(NODE_NAME, {"spec": {"unschedulable": is_cordoned}})

    def _evict(self, name: str) -> None:
        """Evict a pod as soon as the disruption budgets allow it."""

        def is_evicted() -> bool:
            eviction = {"metadata": {"name": name, "namespace": self.namespace}}
            try:
                self.core.create_namespaced_pod_eviction(name, self.namespace, eviction)
            except ApiException as error:
                if error.status == _TOO_MANY_REQUESTS:
                    return False
                assert error.status == 404, error
            return True

        wait_until(is_evicted, lambda: f"pod {name} can't be evicted", LIMIT_S)

    def _is_drained(self) -> bool:
        pods = self.core.list_namespaced_pod(self.namespace).items
        return not any(pod.spec.node_name and pod.status.phase in ("Pending", "Running") for pod in pods)

    def _inside(self, *command: str) -> None:
        subprocess.run(host.inside(self.site, *command), check=True, capture_output=True)

    def _pods(self, selector: PodSelector) -> list[Any]:
        """The pods that have not ended, the latest one last; failed ones only stay to be read."""
        pods = self.core.list_namespaced_pod(self.namespace, label_selector=selector.labels).items
        return sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.metadata.name))


def _is_ready(pod: Any, container: str) -> bool:
    statuses = pod.status.container_statuses or ()
    return any(each.name == container and each.ready for each in statuses) and not pod.metadata.deletion_timestamp
