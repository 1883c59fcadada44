"""The way to a NATS server that only pods reach."""

from __future__ import annotations

import socket
import threading

import pytest
from tests.deadline import DEADLINE_S
from websocket import ABNF, WebSocket

from elasticdl.cli.kubernetes.nats_route import service_of
from elasticdl.shared.addresses import Address
from elasticdl.shared.errors import TransientError, UserError
from elasticdl.shared.kubernetes.port_forward import forwarded


@pytest.mark.parametrize(
    ("url", "name", "namespace", "port"),
    [
        ("nats://nats", "nats", "", 4222),
        ("nats://token@nats.infra:4333", "nats", "infra", 4333),
        ("nats://nats.infra.svc.cluster.local", "nats", "infra", 4222),
    ],
)
def test_a_url_names_a_service(url: str, name: str, namespace: str, port: int) -> None:
    assert service_of(Address.parse(url, scheme="nats")) == (name, namespace, port)


@pytest.mark.parametrize("url", ["nats://10.96.0.7:4222", "nats://token@[fd00::7]"])
def test_an_address_names_no_service(url: str) -> None:
    with pytest.raises(UserError, match="ELASTICDL_NATS_URL"):
        service_of(Address.parse(url, scheme="nats"))


class Connection(WebSocket):
    """A connection to the API server: frames go to a socket, whose other end the test has."""

    def __init__(self, server: socket.socket) -> None:
        super().__init__()
        self._server = server
        self._announcements = [b"\0port", b"\1port"]

    def send_binary(self, payload: bytes) -> int:
        assert payload[0] == 0
        self._server.sendall(payload[1:])
        return len(payload)

    def recv_data_frame(self, control_frame: bool = False) -> tuple[int, ABNF]:
        content = self._announcements.pop(0) if self._announcements else b"\0" + self._server.recv(100)
        opcode = ABNF.OPCODE_BINARY if len(content) > 1 else ABNF.OPCODE_CLOSE
        return opcode, ABNF(opcode=opcode, data=content)

    def abort(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)

    def shutdown(self) -> None:
        self._server.close()


def test_bytes_travel_both_ways_until_a_side_closes() -> None:
    pod, inside = socket.socketpair()
    with pod, inside, forwarded(lambda: Connection(inside)) as port:
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
    def refuse() -> WebSocket:
        raise TransientError("the API server can't be reached")

    with forwarded(refuse) as port, socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as client:
        assert client.recv(1) == b""
