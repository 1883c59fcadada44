"""Pods of the test cluster run, have addresses, and end as Kubernetes promises."""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Address

import psutil
from tests.cluster import host
from tests.cluster.conftest import Cluster
from tests.cluster.deployment import nats_server
from tests.cluster.readiness import wait_until
from tests.cluster.sites import NODE_NAME, POD_IMAGE

from elasticdl.shared.pod_instances import pid_of

NATS = "localhost/nats:1"
NATS_PORT = 4222


def test_the_node_is_ready(cluster: Cluster) -> None:
    cluster.node_site()
    (node,) = cluster.core.list_node().items
    assert node.metadata.name == NODE_NAME
    assert {condition.type: condition.status for condition in node.status.conditions} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }


def test_a_pod_and_its_service_are_reached_from_outside(cluster: Cluster, namespace: str) -> None:
    cluster.load_image(NATS, nats_server())
    cluster.create_pod(namespace, "nats", NATS)
    service = {"metadata": {"name": "nats"}, "spec": {"selector": {"app": "nats"}, "ports": [{"port": NATS_PORT}]}}
    address = cluster.core.create_namespaced_service(namespace, service).spec.cluster_ip
    pod = cluster.wait_for_phase(namespace, "nats", "Running")

    assert wait_for_greeting(pod.status.pod_ip).startswith(b"INFO {")
    assert wait_for_greeting(address).startswith(b"INFO {")

    (node,) = cluster.core.list_node().items
    assert resolve(f"nats.{namespace}.svc.cluster.local", node.status.addresses[0].address) == address


def test_a_container_that_exceeds_its_memory_limit_is_killed(cluster: Cluster, namespace: str) -> None:
    cluster.node_site()
    limits = {"limits": {"memory": "64Mi"}}
    cluster.create_pod(
        namespace, "greedy", POD_IMAGE, args=["allocate", "256"], resources=limits, restartPolicy="Never"
    )
    pod = cluster.wait_for_phase(namespace, "greedy", "Failed", "Succeeded")
    ended = pod.status.container_statuses[0].state.terminated
    assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)


def test_a_program_of_the_node_that_is_killed_starts_again(cluster: Cluster, namespace: str) -> None:
    record = host.read_record(cluster.node_site())
    assert record is not None
    programs = psutil.Process(pid_of(record.instance)).children()
    (scheduler,) = (process for process in programs if "kube-scheduler" in process.cmdline())
    scheduler.kill()
    scheduler.wait()
    cluster.create_pod(namespace, "later", POD_IMAGE)
    cluster.wait_for_phase(namespace, "later", "Running")


def wait_for_greeting(address: str) -> bytes:
    """The first bytes that a nats-server sends, once it listens there."""
    received: list[bytes] = []

    def connect() -> bool:
        try:
            with socket.create_connection((address, NATS_PORT), timeout=1) as connection:
                received.append(connection.recv(64))
        except OSError:
            return False
        return True

    wait_until(connect, lambda: f"nats-server does not answer at {address}:{NATS_PORT}")
    return received[0]


def resolve(name: str, server: str) -> str:
    """The IPv4 address that a DNS server has for a name, once it has one (RFC 1035, section 4)."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"
    query = struct.pack(">HHHHHH", 1, 0, 1, 0, 0, 0) + question + struct.pack(">HH", 1, 1)
    found: list[IPv4Address] = []

    def ask() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(1)
            connection.sendto(query, (server, 53))
            try:
                answer = connection.recv(512)
            except TimeoutError:
                return False
        (records,) = struct.unpack(">H", answer[6:8])
        if records:
            found.append(IPv4Address(answer[-4:]))  # the end of the only record
        return bool(records)

    wait_until(ask, lambda: f"{server} does not know {name}")
    return str(found[0])
