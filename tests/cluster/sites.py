"""Where a test cluster keeps its files, and the names that it uses on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
INSIDE = Path("/run/cluster")
"""The run folder as the processes of the node see it: short, because a socket's path has at most 108 bytes."""
IMAGES = INSIDE / "images"
CONTAINERD_SOCKET = Path("/run/containerd/containerd.sock")
"""A path in the node's own mount namespace, not the machine's."""
NODE_NAME = "elasticdl-node"
POD_IMAGE = "localhost/elasticdl-pod:1"


def cache_folder() -> Path:
    """Where programs and running clusters are kept: ``ELASTICDL_CLUSTER_CACHE``, or a folder of the user's cache."""
    if chosen := os.environ.get("ELASTICDL_CLUSTER_CACHE"):
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticdl" / "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What one cluster occupies on this machine. Everything that has no name here disappears with its processes."""

    name: str = "node"
    """Clusters of different names can run at the same time; at most 10 characters."""

    @property
    def folder(self) -> Path:
        """Configuration, logs, images and containers; deleted when the cluster is taken down."""
        return cache_folder() / f"run-{self.name}"

    @property
    def lock(self) -> Path:
        """Held while the cluster is started or taken down."""
        return cache_folder() / f"run-{self.name}.lock"

    @property
    def record(self) -> Path:
        """Which process the cluster is; see ``host.py``."""
        return self.folder / "record.json"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def link(self) -> str:
        """The machine's end of the network link to the node."""
        return f"edl-{self.name}"

    @property
    def cgroup(self) -> str:
        """The control group of all pods, in each hierarchy."""
        return f"elasticdl-{self.name}"
