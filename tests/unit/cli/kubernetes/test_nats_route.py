"""The way to a NATS server that only pods reach."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.cli.kubernetes.nats_route import ServiceAddress
from elasticdl.cli.kubernetes.port_forward import forwarded
from elasticdl.shared.addresses import Address
from elasticdl.shared.errors import TransientError, UserError


@pytest.mark.parametrize(
    ("url", "name", "namespace", "port"),
    [
        ("nats://nats", "nats", "", 4222),
        ("nats://token@nats.infra:4333", "nats", "infra", 4333),
        ("nats://nats.infra.svc.cluster.local", "nats", "infra", 4222),
    ],
)
def test_a_url_names_a_service(url: str, name: str, namespace: str, port: int) -> None:
    assert ServiceAddress.of(Address.parse(url, scheme="nats")) == ServiceAddress(
        name=name, namespace=namespace, port=port
    )


@pytest.mark.parametrize("url", ["nats://10.96.0.7:4222", "nats://token@[fd00::7]"])
def test_an_address_names_no_service(url: str) -> None:
    with pytest.raises(UserError, match="ELASTICDL_NATS_URL"):
        ServiceAddress.of(Address.parse(url, scheme="nats"))


def test_bytes_travel_both_ways_until_a_side_closes() -> None:
    pod, inside = socket.socketpair()
    with pod, inside, forwarded(lambda: inside) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
            client.sendall(b"PING")
            assert pod.recv(4) == b"PING"
            pod.sendall(b"PONG")
            assert client.recv(4) == b"PONG"
        pod.settimeout(DEADLINE_S)
        assert pod.recv(1) == b""
    for thread in threading.enumerate():
        if thread.name.startswith("port-forward"):
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def test_a_pod_that_can_not_be_reached_closes_the_connection() -> None:
    def refuse() -> socket.socket:
        raise TransientError("the API server can't be reached")

    with forwarded(refuse) as port, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        assert client.recv(1) == b""
