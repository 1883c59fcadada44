"""Client and server over real sockets: order, refusal of strangers, garbage, dead peers."""

from __future__ import annotations

import contextlib
import itertools
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.deadline import DEADLINE_S

from elasticdl.shared.errors import InvariantError, ProtocolError, UserError
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.buffers import BufferPool, Bytes
from elasticdl.shared.wire.client import ClientSettings, WireClient
from elasticdl.shared.wire.connection import Connection, ConnectionLostError, Frame
from elasticdl.shared.wire.frames import Tensor, encode
from elasticdl.shared.wire.server import Response, ServerSettings, WireServer

TOKEN = "secret"
LARGE = np.zeros(4 << 20, np.float32)
SETTINGS = ServerSettings(handshake_s=0.5, frame_deadline_s=5.0, connections_max=16)


def echo(frame: Frame) -> Response:
    if frame.meta == b"bad":
        raise ProtocolError("we don't like it")
    if frame.meta == b"bug":
        raise InvariantError("planted")
    if frame.meta == b"no memory":
        raise MemoryError
    if frame.meta == b"large":
        return Response(meta=b"", tensors=(LARGE,))
    return Response(meta=frame.meta, tensors=frame.tensors)


class Echo:
    def __init__(self, host: str = SETTINGS.host) -> None:
        self.fatal: list[BaseException] = []
        settings = replace(SETTINGS, host=host)
        self.server = WireServer(echo, token=TOKEN, identity="me", on_fatal=self.fatal.append, settings=settings)
        self.server.start()

    def client(self, token: str = TOKEN) -> WireClient:
        return WireClient(
            self.server.address,
            token=token,
            peer="test",
            pool=BufferPool(),
            settings=ClientSettings(connect_s=5.0, request_s=5.0),
        )

    def dial(self) -> socket.socket:
        host, port = self.server.address.split(":")
        return socket.create_connection((host, int(port)), timeout=DEADLINE_S)


@pytest.fixture
def peer() -> Iterator[Echo]:
    peer = Echo()
    yield peer
    peer.server.close()


def test_a_server_listens_on_an_address_of_ipv6() -> None:
    peer = Echo("::1")
    assert peer.server.address.startswith("[::1]:")
    client = peer.client()
    reply = client.send(b"here", []).result()
    assert reply.meta == b"here"
    reply.release()
    client.close()
    peer.server.close()


def test_replies_come_in_order_and_whole(peer: Echo) -> None:
    client = peer.client()
    assert client.identity == "me"
    sent = [np.arange(size, dtype=np.float32) + size for size in (0, 1, 1000, 500_000)]
    tickets = [client.send(bytes([number]), [tensor]) for number, tensor in enumerate(sent)]
    for number, (ticket, tensor) in enumerate(zip(tickets, sent, strict=True)):
        frame = ticket.result()
        assert frame.meta == bytes([number])
        np.testing.assert_array_equal(frame.tensors[0], tensor)
        frame.release()
    client.close()


def test_large_frames_both_ways_at_once_do_not_lock_up(peer: Echo) -> None:
    client = peer.client()
    large = np.zeros(4 << 20, np.float32)  # far beyond what socket buffers hold
    tickets = [client.send(b"", [large]) for _ in range(4)]
    assert [ticket.result().tensors[0].size for ticket in tickets] == [large.size] * 4
    client.close()


def test_many_threads_on_one_connection(peer: Echo) -> None:
    client = peer.client()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            frame = client.request(b"x", [np.full(100, number, np.int64)])
            if not (frame.tensors[0] == number).all():
                wrong.append(number)
            frame.release()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    client.close()


@pytest.mark.parametrize("always", [False, True])
def test_a_thread_with_its_reply_does_not_wait_for_that_of_another_one(always: bool) -> None:
    answered = {b"first": threading.Event(), b"second": threading.Event()}

    def handle(request: Frame) -> Response:
        request.before_waiting()
        assert answered[request.meta].wait(DEADLINE_S)
        return Response(meta=request.meta)

    server = WireServer(handle, token=TOKEN, identity="me", on_fatal=lambda error: None, settings=SETTINGS)
    server.start()
    client = WireClient(server.address, token=TOKEN, peer="test", pool=BufferPool())
    if always:
        client.receive_always()
    tickets = [client.send(b"first"), client.send(b"second")]
    first, second = (threading.Thread(target=ticket.result) for ticket in tickets)
    second.start()
    first.start()
    answered[b"first"].set()
    first.join(DEADLINE_S)
    assert not first.is_alive()
    assert second.is_alive()
    answered[b"second"].set()
    second.join(DEADLINE_S)
    assert tickets[1].result().meta == b"second"
    client.close()
    server.close()


def test_a_client_that_always_receives_takes_large_replies_that_are_not_awaited(peer: Echo) -> None:
    client = peer.client()
    client.receive_always()
    client.receive_always()  # Once is enough.
    tickets = [client.send(b"large") for _ in range(3)]
    end_s, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not tickets[-1].is_settled and time.monotonic() < end_s:  # Nothing here asks for the replies.
        pause.wait(0.01)
    assert tickets[-1].is_settled
    assert [ticket.result().tensors[0].size for ticket in tickets] == [LARGE.size] * 3
    peer.server.close()
    with pytest.raises(ConnectionLostError):
        client.request(b"lost")
    client.close()


class Interrupted(BufferPool):
    """Stands for a Ctrl-C while a large reply arrives."""

    def take(self, size_bytes: int) -> Bytes:
        if size_bytes > 100_000:
            raise KeyboardInterrupt
        return super().take(size_bytes)


def test_a_connection_of_which_a_reply_was_received_in_part_is_lost(peer: Echo) -> None:
    client = WireClient(peer.server.address, token=TOKEN, peer="test", pool=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        client.request(b"large")
    assert client.lost
    client.close()


class Full(BufferPool):
    """A pool without memory for a reply; the handshake has none."""

    def take(self, size_bytes: int) -> Bytes:
        if size_bytes > 100_000:
            raise MemoryError
        return super().take(size_bytes)


def test_an_unexpected_error_ends_all_waiting(peer: Echo) -> None:
    client = WireClient(peer.server.address, token=TOKEN, peer="test", pool=Full())
    tickets = [client.send(b"", [np.zeros(1 << 20, np.float32)]) for _ in range(2)]
    for ticket in tickets:
        with pytest.raises(ConnectionLostError, match="could not be received: MemoryError"):
            ticket.result()
    assert client.lost
    client.close()


def test_a_wrong_token_is_closed(peer: Echo) -> None:
    with pytest.raises(ConnectionLostError):
        peer.client(token="guess")
    peer.client().close()


def test_a_server_without_a_token_does_not_start() -> None:
    with pytest.raises(UserError, match="no token is set"):
        WireServer(echo, token="", identity="me", on_fatal=lambda error: None, settings=SETTINGS)


def test_a_frame_that_memory_has_no_room_for_closes_only_its_connection(peer: Echo) -> None:
    client, other = peer.client(), peer.client()
    with pytest.raises(ConnectionLostError):
        client.request(b"no memory")
    assert other.request(b"fine").meta == b"fine"
    assert peer.fatal == []
    client.close()
    other.close()


def test_a_refused_frame_closes_only_its_connection(peer: Echo) -> None:
    other, client = peer.client(), peer.client()
    with pytest.raises(ConnectionLostError):
        client.request(b"bad")
    assert other.request(b"good").meta == b"good"
    assert peer.fatal == []
    other.close()
    client.close()


def test_a_bug_is_fatal(peer: Echo) -> None:
    client = peer.client()
    with pytest.raises(ConnectionLostError):
        client.request(b"bug")
    assert [str(error) for error in peer.fatal] == ["planted"]
    client.close()


def test_a_server_without_room_for_a_thread_refuses_connections_until_there_is_some(
    peer: Echo, capsys: pytest.CaptureFixture[str]
) -> None:
    threading.stack_size(1 << 46)  # More than the kernel gives: no thread starts.
    try:
        for _ in range(3):
            with peer.dial() as refused:
                assert refused.recv(1) == b""
    finally:
        threading.stack_size(0)
    client = peer.client()
    client.request(b"served").release()
    assert capsys.readouterr().out.count("connection refused") == 1
    assert peer.fatal == []
    client.close()


def test_a_silent_stranger_is_closed_within_the_handshake_deadline(peer: Echo) -> None:
    with peer.dial() as stranger:
        assert stranger.recv(1) == b""


def test_a_server_that_goes_away_is_noticed_at_once(peer: Echo) -> None:
    client = peer.client()
    peer.server.close()
    with pytest.raises(ConnectionLostError):
        client.request(b"anybody?")
    assert client.lost
    client.close()


def test_a_server_that_never_answers_is_given_up_at_the_deadline() -> None:
    release = threading.Event()

    def stuck(frame: Frame) -> Response:
        release.wait()
        return Response(meta=frame.meta)

    server = WireServer(stuck, token=TOKEN, identity="me", on_fatal=lambda error: None, settings=SETTINGS)
    server.start()
    client = WireClient(server.address, token=TOKEN, peer="test", pool=BufferPool())
    with pytest.raises(ConnectionLostError, match=r"silent for 0\.1 s"):
        client.send(b"").result(timeout_s=0.05)
    release.set()
    client.close()
    server.close()


def test_the_end_of_a_connection_is_reported_with_its_number() -> None:
    senders: list[int] = []
    ended: queue.SimpleQueue[int] = queue.SimpleQueue()

    def record(frame: Frame) -> Response:
        senders.append(frame.sender)
        return Response(meta=frame.meta)

    server = WireServer(
        record, token=TOKEN, identity="me", on_fatal=lambda error: None, settings=SETTINGS, on_closed=ended.put
    )
    server.start()
    clients = [WireClient(server.address, token=TOKEN, peer="test", pool=BufferPool()) for _ in range(2)]
    for client in clients:
        client.request(b"").release()
    clients[1].close()
    assert ended.get(timeout=DEADLINE_S) == senders[1] != senders[0]
    clients[0].close()
    server.close()


def frame(request: int, meta: bytes, *tensors: Tensor) -> bytes:
    return b"".join(bytes(part) for part in encode(request, meta, tensors, SETTINGS.limits))


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.sampled_from((0, 1, 100, 5_000, 40_000)), min_size=1, max_size=4),
    meta_bytes=st.sampled_from((0, 10, 20_000)),
    cuts=st.lists(st.integers(0, 400_000), max_size=4),
)
def test_frames_are_received_whole_wherever_they_are_cut(sizes: list[int], meta_bytes: int, cuts: list[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    connection = Connection(near, pool=BufferPool(), limits=SETTINGS.limits, frame_deadline_s=DEADLINE_S)
    sent = [np.arange(size, dtype=np.int64) + number for number, size in enumerate(sizes)]
    data = b"".join(frame(number, bytes(meta_bytes), tensor) for number, tensor in enumerate(sent))
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]

    def send() -> None:
        for start, end in itertools.pairwise(bounds):
            far.sendall(data[start:end])

    sender = threading.Thread(target=send)
    sender.start()
    for number, tensor in enumerate(sent):
        received = connection.receive()
        assert (received.request, received.meta) == (number, bytes(meta_bytes))
        np.testing.assert_array_equal(received.tensors[0], tensor)
        received.release()
    sender.join()
    far.close()
    with pytest.raises(ConnectionLostError, match="closed the connection"):
        connection.receive()
    connection.close()


def test_requests_that_follow_each_other_are_sent_together_and_answered(peer: Echo) -> None:
    client = peer.client()
    small, large = np.arange(10, dtype=np.int64), np.zeros(1 << 20, np.float32)
    for first in (small, large):
        tickets = [client.send(b"first", [first], is_followed=True), client.send(b"second")]
        answers = [ticket.result() for ticket in tickets]
        assert [answer.meta for answer in answers] == [b"first", b"second"]
        np.testing.assert_array_equal(answers[0].tensors[0], first)
    assert client.send(b"alone", is_followed=True).result().meta == b"alone"
    client.close()


def test_a_malformed_request_does_not_withhold_the_answer_to_the_one_before_it(peer: Echo) -> None:
    with peer.dial() as stranger:
        stranger.sendall(HELLO)
        connection = Connection(stranger, pool=BufferPool(), limits=SETTINGS.limits, frame_deadline_s=DEADLINE_S)
        connection.receive()
        stranger.sendall(frame(1, b"good") + b"not a frame, but as long as a header")
        assert connection.receive().meta == b"good"
        with pytest.raises(ConnectionLostError):
            connection.receive()


def test_a_handler_that_waits_lets_earlier_answers_go_first() -> None:
    answered = threading.Event()

    def handle(request: Frame) -> Response:
        if request.meta == b"waits":
            request.before_waiting()
            assert answered.wait(DEADLINE_S)
        return Response(meta=request.meta)

    fatal: list[BaseException] = []
    server = WireServer(handle, token=TOKEN, identity="me", on_fatal=fatal.append, settings=SETTINGS)
    server.start()
    client = WireClient(server.address, token=TOKEN, peer="test", pool=BufferPool())
    tickets = [client.send(b"first", is_followed=True), client.send(b"waits")]
    assert tickets[0].result(DEADLINE_S).meta == b"first"
    answered.set()
    assert tickets[1].result(DEADLINE_S).meta == b"waits"
    assert fatal == []
    client.close()
    server.close()


HELLO = frame(0, wire_pb2.Hello(token=TOKEN).SerializeToString())
VALID = HELLO + frame(1, b"meta", np.arange(10, dtype=np.int64), np.ones(3, np.float32))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    garbage=st.binary(max_size=200)
    | st.tuples(st.just(HELLO), st.binary(max_size=200)).map(b"".join)
    | st.integers(0, len(VALID)).map(lambda end: VALID[:end])
    | st.tuples(st.integers(0, len(VALID) - 1), st.integers(0, 255)).map(
        lambda change: VALID[: change[0]] + bytes([change[1]]) + VALID[change[0] + 1 :]
    )
)
def test_garbage_neither_crashes_nor_stalls_the_server(peer: Echo, garbage: bytes) -> None:
    with peer.dial() as stranger, contextlib.suppress(OSError):  # being hung up on is what a stranger must expect
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(1 << 16):
            pass
    client = peer.client()
    assert client.request(b"still there?").meta == b"still there?"
    client.close()
    assert peer.fatal == []
