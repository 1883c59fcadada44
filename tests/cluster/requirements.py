"""What this machine needs in order to run a node."""

from __future__ import annotations

import os
import shutil
import sys
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
    packages = {package for program, package in PACKAGES.items() if not shutil.which(program)}
    if not (CNI_PLUGINS / "ptp").exists():
        packages.add("containernetworking-plugins")
    if packages:
        return f"The test cluster needs more programs. Run: apt-get install {' '.join(sorted(packages))}"
    if not built and not shutil.which("go"):
        return f"The test cluster is compiled with Go {GO_NEEDED} or later, which is not on PATH. Install it."
    return ""
