"""A node that is lost for good, and another one that has joined the cluster, on one machine.

The kubelet of the node is suspended, so its Node object stays and nothing reports to the API server any more. A second
kubelet registers the machine under another name. It kills all containers that it does not know, as if the first machine
had lost its power.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.cluster import host
from tests.cluster.readiness import wait_until
from tests.cluster.sites import INSIDE, NODE_NAME, Site

from elasticdl.shared.pod_instances import pid_of

JOINED = "elasticdl-joined"
_CONFIG = "kubelet.json"
_JOINED_CONFIG = "kubelet-joined.json"
_PORTS = {"port": 10260, "healthzPort": 10261}


@dataclass(frozen=True, slots=True, kw_only=True)
class LostNode:
    """Loses the node of a site.

    Attributes:
        core: a ``CoreV1Api``.
        site: the node.
    """

    core: Any
    site: Site

    @contextmanager
    def lost(self, uids: Sequence[str]) -> Iterator[None]:
        """The node is lost within this block, which begins when the other node is ready.

        Args:
            uids: pods whose processes have ended when the block begins.
        """
        kubelet = self._kubelet()
        kubelet.suspend()
        with (self.site.folder / "logs" / "kubelet-joined.log").open("ab") as log:
            joined = subprocess.Popen(self._joining(kubelet.cmdline()), stdout=log, stderr=log)
        try:
            wait_until(lambda: self._is_ready(JOINED), lambda: "the second node does not become ready")
            wait_until(lambda: not _have_processes(uids), lambda: "containers of the lost node still run")
            yield
        finally:
            for process in psutil.Process(joined.pid).children():  # nsenter has forked into the namespace.
                process.kill()
            joined.wait()
            self.core.delete_node(JOINED)
            kubelet.resume()
            wait_until(lambda: self._is_ready(NODE_NAME), lambda: "the node does not become ready")

    def _kubelet(self) -> psutil.Process:
        record = host.read_record(self.site)
        assert record is not None
        return next(
            each for each in psutil.Process(pid_of(record.instance)).children() if each.cmdline()[1:2] == ["kubelet"]
        )

    def _joining(self, command: Sequence[str]) -> list[str]:
        """The command line of the second kubelet, from that of the first."""
        content = json.loads((self.site.folder / _CONFIG).read_text())
        content |= {**_PORTS, "podLogsDir": str(INSIDE / "logs" / "pods-joined")}
        (self.site.folder / _JOINED_CONFIG).write_text(json.dumps(content))
        changed = {
            "--config": INSIDE / _JOINED_CONFIG,
            "--root-dir": INSIDE / "kubelet-joined",
            "--cert-dir": INSIDE / "kubelet-joined-pki",
            "--hostname-override": JOINED,
        }
        flags = [
            f"{name}={changed[name]}" if name in changed else flag
            for flag in command
            for name in [flag.partition("=")[0]]
        ]
        return host.inside(self.site, "--pid", "--ipc", "--uts", *flags)

    def _is_ready(self, name: str) -> bool:
        conditions = [
            condition
            for node in self.core.list_node().items
            if node.metadata.name == name
            for condition in node.status.conditions or ()
        ]
        return any(each.type == "Ready" and each.status == "True" for each in conditions)


def _have_processes(uids: Sequence[str]) -> bool:
    """Whether any process is in the control group of one of these pods."""
    for process in psutil.process_iter():
        try:
            groups = Path(f"/proc/{process.pid}/cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(uid in groups for uid in uids):
            return True
    return False
