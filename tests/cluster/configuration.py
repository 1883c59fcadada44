"""The configuration files of the node's programs. Paths in them are those that the programs see."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path

from tests.cluster.addresses import Addresses
from tests.cluster.requirements import CNI_PLUGINS
from tests.cluster.sites import CONTAINERD_SOCKET, INSIDE, NODE_NAME, POD_IMAGE, Site

PKI = INSIDE / "pki"
SERVICE_ACCOUNT_KEY = INSIDE / "service-account.key"
INNER_KUBECONFIG = INSIDE / "kubeconfig-inside"
TOKENS = INSIDE / "tokens.csv"


def write_configuration(site: Site, addresses: Addresses) -> None:
    """Write all files into the run folder of the cluster."""
    token = secrets.token_hex(16)
    write = _Writer(site.folder)
    write.text("tokens.csv", f"{token},admin,admin,system:masters\n")
    write.json(site.kubeconfig.name, _kubeconfig(addresses, site.folder / "pki", token))
    write.json(INNER_KUBECONFIG.name, _kubeconfig(addresses, PKI, token))
    write.json("kubelet.json", _kubelet(site, addresses))
    write.json("kube-proxy.json", _kube_proxy(addresses))
    write.json("cni/10-pods.conflist", _cni(addresses))
    write.text("containerd.toml", CONTAINERD)
    write.text("Corefile", COREFILE)
    key = site.folder / SERVICE_ACCOUNT_KEY.name
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)


class _Writer:
    """Writes files that only their owner can read, because some of them contain the token."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def text(self, name: str, content: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(content)

    def json(self, name: str, content: object) -> None:
        self.text(name, json.dumps(content, indent=2))


def _kubeconfig(addresses: Addresses, pki: Path, token: str) -> dict[str, object]:
    cluster = {"server": addresses.api, "certificate-authority": str(pki / "apiserver.crt")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "elasticdl", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "elasticdl", "context": {"cluster": "elasticdl", "user": "admin"}}],
        "current-context": "elasticdl",
    }


def _kubelet(site: Site, addresses: Addresses) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Only the API server, the machine and the pods can reach the kubelet.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{site.cgroup}",
        "clusterDNS": [str(addresses.node)],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "enforceNodeAllocatable": [],
        # The disk belongs to the machine: neither evict pods nor delete images because it is rather full.
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "failCgroupV1": False,
        "failSwapOn": False,
        "maxPods": 240,
        "podLogsDir": str(INSIDE / "logs" / "pods"),
        "resolvConf": "",
        "volumePluginDir": str(INSIDE / "volume-plugins"),
    }


def _kube_proxy(addresses: Addresses) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "bindAddress": str(addresses.node),
        "clientConnection": {"kubeconfig": str(INNER_KUBECONFIG)},
        "clusterCIDR": str(addresses.pods),
        # 0: leave the kernel's limit and time-outs as they are.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "hostnameOverride": NODE_NAME,
        "mode": "iptables",
    }


def _cni(addresses: Addresses) -> dict[str, object]:
    """Pods have point-to-point links, so all their traffic is routed and kube-proxy sees all of it."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": str(addresses.pods)}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(INSIDE / "addresses-in-use"),
    }
    plugin = {"type": "ptp", "ipMasq": False, "ipam": ipam}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}


CONTAINERD = f"""\
version = 2
root = "{INSIDE}/containerd"
state = "/run/containerd"

[grpc]
address = "{CONTAINERD_SOCKET}"

[plugins."io.containerd.grpc.v1.cri"]
# Without CAP_SYS_RESOURCE runc can't lower the score and would fail.
restrict_oom_score_adj = true
sandbox_image = "{POD_IMAGE}"

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PLUGINS}"
conf_dir = "{INSIDE}/cni"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""

COREFILE = f"""\
.:53 {{
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {INNER_KUBECONFIG}
    }}
}}
"""
