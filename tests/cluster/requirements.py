"""What this machine needs in order to run a node."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGES = {
    "containerd": "containerd",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
    "runc": "runc",
    "unshare": "util-linux",
}
"""Program -> Debian package."""
CNI_PLUGINS = Path("/usr/lib/cni")
NODE_PACKAGES = PACKAGES | {str(CNI_PLUGINS / "ptp"): "containernetworking-plugins"}
IMAGE_PACKAGES = {"buildah": "buildah", "debootstrap": "debootstrap"}
"""For images of the services."""
GO_NEEDED = "1.26"


def missing(*, built: bool) -> str:
    """One sentence that names what is missing and how to get it; empty when the node can run.

    Args:
        built: The programs of the node are in the cache, so that Go is not needed.
    """
    if sys.platform != "linux":
        return "The test cluster needs Linux."
    if os.geteuid() != 0:
        return "The test cluster needs root, for namespaces and control groups. Run it as root, or set KUBECONFIG."
    if lacking := missing_packages(NODE_PACKAGES):
        return lacking
    if not built and not shutil.which("go"):
        return f"The test cluster is compiled with Go {GO_NEEDED} or later, which is not on PATH. Install it."
    return ""


def missing_packages(packages: Mapping[str, str]) -> str:
    """One sentence that says how to install what is missing; empty when nothing is.

    Args:
        packages: Program or path of a program -> Debian package.
    """
    lacking = " ".join(to_install(packages))
    return f"The test cluster needs more programs. Run: apt-get install {lacking}" if lacking else ""


def to_install(packages: Mapping[str, str]) -> list[str]:
    """The packages of those programs that this machine lacks."""
    return sorted({package for program, package in packages.items() if not shutil.which(program)})
