"""The programs of the node, in the order in which they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.addresses import Addresses
from tests.cluster.configuration import INNER_KUBECONFIG, PKI, SERVICE_ACCOUNT_KEY, TOKENS
from tests.cluster.readiness import answers, containerd_is_ready, is_running, node_is_ready
from tests.cluster.sites import INSIDE, NODE_NAME

ETCD = "http://127.0.0.1:2379"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One process of the node, which its first process starts again whenever it ends."""

    name: str
    command: list[str]
    ready: Callable[[], bool] = is_running
    """Whether the next program can start."""


def programs(binaries: Path, addresses: Addresses) -> list[Program]:
    """All programs. Ports and paths are fixed, because network and mounts are the node's own."""
    node = str(binaries / "node")
    kubeconfig = f"--kubeconfig={INNER_KUBECONFIG}"
    single = ["--leader-elect=false", "--secure-port=0"]
    return [
        Program(
            name="containerd",
            command=["containerd", f"--config={INSIDE}/containerd.toml"],
            ready=containerd_is_ready,
        ),
        Program(name="etcd", command=[node, "etcd", *_etcd_flags()], ready=lambda: answers(f"{ETCD}/health")),
        Program(
            name="kube-apiserver",
            command=[node, "kube-apiserver", *_api_flags(addresses)],
            ready=lambda: answers(f"{addresses.api}/readyz", certificates=PKI / "apiserver.crt"),
        ),
        Program(
            name="kube-controller-manager",
            command=[
                *[node, "kube-controller-manager", kubeconfig, *single],
                f"--root-ca-file={PKI}/apiserver.crt",
                f"--service-account-private-key-file={SERVICE_ACCOUNT_KEY}",
            ],
        ),
        Program(name="kube-scheduler", command=[node, "kube-scheduler", kubeconfig, *single]),
        Program(name="coredns", command=[node, "coredns", f"{INSIDE}/Corefile"]),
        Program(name="kube-proxy", command=[node, "kube-proxy", f"--config={INSIDE}/kube-proxy.json"]),
        Program(
            name="kubelet",
            command=[
                *[node, "kubelet", kubeconfig, f"--config={INSIDE}/kubelet.json"],
                *[f"--root-dir={INSIDE}/kubelet", f"--cert-dir={INSIDE}/kubelet-pki"],
                *[f"--hostname-override={NODE_NAME}", f"--node-ip={addresses.node}"],
            ],
            ready=lambda: node_is_ready(addresses.api, TOKENS, PKI / "apiserver.crt"),
        ),
    ]


def _etcd_flags() -> list[str]:
    """A crash of the machine may lose data; a test does not need it any more."""
    peers = "http://127.0.0.1:2380"
    return [
        *[f"--data-dir={INSIDE}/etcd", "--unsafe-no-fsync", "--log-level=warn"],
        *[f"--listen-client-urls={ETCD}", f"--advertise-client-urls={ETCD}"],
        *[
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        ],
    ]


def _api_flags(addresses: Addresses) -> list[str]:
    """The API server makes its own certificate in ``PKI``, which is also the authority that clients trust."""
    return [
        f"--advertise-address={addresses.node}",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        f"--cert-dir={PKI}",
        f"--etcd-servers={ETCD}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={SERVICE_ACCOUNT_KEY}",
        f"--service-account-signing-key-file={SERVICE_ACCOUNT_KEY}",
        f"--service-cluster-ip-range={addresses.services}",
        f"--token-auth-file={TOKENS}",
    ]
