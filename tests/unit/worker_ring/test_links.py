"""The connections of a generation, between real sockets: whom a member sends its sums to."""

from __future__ import annotations

import queue
from functools import partial

import pytest
from tests.deadline import DEADLINE_S

from elasticdl.shared.messages.commands import RingMember
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.proto import wire_pb2
from elasticdl.shared.wire.connection import Connection
from elasticdl.worker.ring.core import events
from elasticdl.worker.ring.links import Links
from elasticdl.worker.ring.listener import Listener, RingSettings
from elasticdl.worker.ring.ports import Generation


@pytest.mark.parametrize(("nodes", "order"), [("aaa", "012"), ("abab", "0213"), ("abcab", "03142")])
def test_sums_travel_from_node_to_node(nodes: str, order: str) -> None:
    arrived: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    lost: queue.SimpleQueue[events.RingEvent] = queue.SimpleQueue()
    settings = [
        RingSettings(worker=PodName(f"worker-{rank}"), incarnation=Incarnation(f"i{rank}"), token="secret")
        for rank in range(len(nodes))
    ]
    links: list[Links] = []

    def serve(rank: int, hello: wire_pb2.RingHello, connection: Connection) -> None:
        if hello.is_data:
            arrived.put((hello.rank, rank))
        links[rank].serve(hello, connection)

    listeners = [Listener(one, partial(serve, rank)) for rank, one in enumerate(settings)]
    members = tuple(
        [
            RingMember(worker=one.worker, incarnation=one.incarnation, address=listener.address, node=node)
            for one, listener, node in zip(settings, listeners, nodes, strict=True)
        ]
    )
    generation = Generation(number=1, members=members)
    links += [Links(one, generation, rank, lost.put) for rank, one in enumerate(settings)]
    try:
        for listener in listeners:
            listener.start()
        for one in links:
            one.start()
        for one in links:
            one.ring()
        found = dict([arrived.get(timeout=DEADLINE_S) for _ in links])
        ranks = list(map(int, order))
        assert found == dict(zip(ranks, [*ranks[1:], ranks[0]], strict=True))
    finally:
        for one in links:
            one.close()
            one.free()
        for listener in listeners:
            listener.close()
