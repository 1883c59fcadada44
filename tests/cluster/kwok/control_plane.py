"""The programs of the cluster: plain processes on free ports of the loopback interface, which end with the test run."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.cluster.programs import Program
from tests.cluster.readiness import answers, wait_until

ADMIN, MASTER = "admin", "master"
"""Users. The API server logs the requests of the master only."""
_STOP_S = 10.0

STAGES = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: node-is-ready}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
    - {key: '.status.conditions.[] | select(.type == "Ready") | .status', operator: NotIn, values: ["True"]}
  next:
    statusTemplate: |
      conditions:
      - {type: Ready, status: "True", reason: Simulated, message: "", lastTransitionTime: {{ Now | Quote }}}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-starts}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: .status.phase, operator: In, values: [Pending]}
  next:
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      startTime: {{ $now | Quote }}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: pod-ends}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: Exists}
  next: {delete: true}
"""
"""What kwok does: pods that have a node run at once, and deleted ones disappear at once."""

AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted", "ResponseComplete"],
    "rules": [{"level": "Metadata", "users": [MASTER]}, {"level": "None"}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A running control plane, and where its files are."""

    folder: Path

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """The kubeconfig of a user, whose default namespace is ``default``."""
        return self.folder / f"kubeconfig-{user}"

    @property
    def audit_log(self) -> Path:
        """The requests of the master, one JSON object per line."""
        return self.folder / "audit.log"


@contextmanager
def control_plane(folder: Path, node: Path, kwok: Path | None) -> Iterator[ControlPlane]:
    """Run a control plane.

    Args:
        folder: for its files.
        node: the program with etcd, API server and scheduler.
        kwok: the program kwok; None: there are only etcd and the API server, and pods do not start.

    Raises:
        RuntimeError: a program did not become ready.
    """
    etcd_port, peer_port, api_port = _free_ports(3)
    plane = ControlPlane(folder=folder)
    _write_files(plane, f"https://127.0.0.1:{api_port}")
    with ExitStack() as stack:
        programs = _servers(plane, node, etcd_port, peer_port, api_port)
        for program in programs + (_actors(plane, node, kwok) if kwok else []):
            log = stack.enter_context((folder / f"{program.name}.log").open("wb"))
            stack.enter_context(_running(program, log))
        yield plane


def _servers(plane: ControlPlane, node: Path, etcd_port: int, peer_port: int, api_port: int) -> list[Program]:
    """What keeps objects."""
    folder = plane.folder
    etcd, peers = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
    return [
        Program(
            name="etcd",
            command=[
                *[str(node), "etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync", "--log-level=warn"],
                *[f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}"],
                *[f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}"],
            ],
            ready=lambda: answers(f"{etcd}/health"),
        ),
        Program(
            name="kube-apiserver",
            command=[
                *[str(node), "kube-apiserver", f"--etcd-servers={etcd}", f"--secure-port={api_port}"],
                *["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none", "--authorization-mode=RBAC"],
                # Without a controller manager, nothing creates service accounts or removes the taints of new nodes.
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
                *[f"--cert-dir={folder}/pki", f"--token-auth-file={folder}/tokens.csv"],
                *["--service-account-issuer=https://localhost", f"--service-account-key-file={folder}/key"],
                *[f"--service-account-signing-key-file={folder}/key", "--service-cluster-ip-range=10.0.0.0/24"],
                *[f"--audit-policy-file={folder}/audit.json", f"--audit-log-path={plane.audit_log}"],
                "--audit-log-mode=blocking",
            ],
            ready=lambda: answers(f"https://127.0.0.1:{api_port}/readyz", certificates=folder / "pki/apiserver.crt"),
        ),
    ]


def _actors(plane: ControlPlane, node: Path, kwok: Path) -> list[Program]:
    """What acts on objects."""
    folder, kubeconfig = plane.folder, f"--kubeconfig={plane.kubeconfig()}"
    return [
        Program(
            name="kube-scheduler",
            command=[str(node), "kube-scheduler", kubeconfig, "--leader-elect=false", "--secure-port=0"],
        ),
        Program(
            name="kwok",
            command=[
                *[str(kwok), kubeconfig, f"--config={folder}/stages.yaml", "--manage-all-nodes=true"],
                *["--server-address=", "--node-lease-duration-seconds=0"],
            ],
        ),
    ]


def _write_files(plane: ControlPlane, server: str) -> None:
    folder = plane.folder
    tokens = {user: secrets.token_hex(16) for user in (ADMIN, MASTER)}
    (folder / "tokens.csv").write_text("".join(f"{tokens[each]},{each},{each},system:masters\n" for each in tokens))
    (folder / "stages.yaml").write_text(STAGES)
    (folder / "audit.json").write_text(json.dumps(AUDIT))
    subprocess.run(["openssl", "genrsa", "-out", str(folder / "key"), "2048"], check=True, capture_output=True)
    cluster = {"server": server, "certificate-authority": str(folder / "pki/apiserver.crt")}
    for user, token in tokens.items():
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "kwok", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "kwok", "context": {"cluster": "kwok", "user": user, "namespace": "default"}}],
            "current-context": "kwok",
        }
        plane.kubeconfig(user).write_text(json.dumps(content))


@contextmanager
def _running(program: Program, log: IO[bytes]) -> Iterator[None]:
    command = ["setpriv", "--pdeathsig=KILL", *program.command]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: _is_ready(program, process), lambda: f"{program.name} is not ready. {_tail(log)}")
            yield
        finally:
            process.kill()
            process.wait(_STOP_S)


def _is_ready(program: Program, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"{program.name} ended with exit code {process.returncode}. See its log.")
    return program.ready()


def _tail(log: IO[bytes]) -> str:
    return f"The end of {log.name}:\n{Path(log.name).read_text(errors='replace')[-3000:]}"


def _free_ports(count: int) -> Sequence[int]:
    """Ports that nothing uses now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
