"""Ps cores behind real sockets, without broker and storage."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tests.unit.ps.example import PLAN, ROWS_A, ROWS_B

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.model.signature import ModelSignature
from elasticdl.shared.names import PodName, new_incarnation
from elasticdl.shared.wire.client import ClientSettings
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.message_codec import decode_request
from elasticdl.shared.wire.messages import Floats
from elasticdl.shared.wire.server import Response, WireServer
from elasticdl.worker.ps_client import PsAddress, PsClient, PsClientSettings, PsDirectory

TOKEN = "token"


class PsServer:
    """One life of one ps."""

    def __init__(self, number: int, ps: int, policy: UpdatePolicy, requests: list[str]) -> None:
        self.incarnation = new_incarnation()
        self.fatal: list[BaseException] = []
        self.core = PsCore(plan=PLAN, placement=Placement.even(ps), number=number, policy=policy)
        self._handler = PsHandler(self.core, self.incarnation)
        self._requests = requests
        self.tensor_bytes = 0
        """Received in all requests so far: gradients, initial values, ids of rows."""
        self.server = WireServer(self._serve, token=TOKEN, identity=self.incarnation, on_fatal=self.fatal.append)
        self.server.start()
        self.address = self.server.address
        """Stays known after the end."""

    def _serve(self, frame: Frame) -> Response:
        self._requests.append(f"{type(decode_request(frame.meta, frame.tensors)).__name__} {self.core.number}")
        self.tensor_bytes += sum(tensor.nbytes for tensor in frame.tensors)
        return self._handler(frame)


class Servers:
    """All ps of a job; any of them can be killed and started again."""

    def __init__(self, ps: int, *, policy: UpdatePolicy | None = None) -> None:
        self._policy = policy or UpdatePolicy()
        self.placement = Placement.even(ps)
        self.requests: list[str] = []
        """Kind of each request and number of its ps, in the order of their arrival."""
        self.names = tuple(PodName(f"ps-{number}") for number in range(ps))
        self.ps = [PsServer(number, ps, self._policy, self.requests) for number in range(ps)]
        self._clients: list[PsClient] = []

    def resolve(self) -> Mapping[PodName, PsAddress]:
        return {
            name: PsAddress(address=one.address, incarnation=one.incarnation)
            for name, one in zip(self.names, self.ps, strict=True)
        }

    def client(self, signature: ModelSignature, *, plan: str = PLAN.fingerprint) -> PsClient:
        client = PsClient(
            PsDirectory(placement=lambda: self.placement, resolve=self.resolve),
            token=TOKEN,
            peer="test",
            plan=plan,
            signature=signature,
            settings=PsClientSettings(
                unavailable_s=20.0,
                wire=ClientSettings(request_s=20.0),
                has_gate=self._policy.gate is not None,
            ),
        )
        self._clients.append(client)
        return client

    def start_serving(self) -> None:
        for one in self.ps:
            one.core.start_serving()

    def kill(self, number: int) -> None:
        self.ps[number].server.close()

    def restart(self, number: int) -> PsServer:
        self.ps[number] = PsServer(number, len(self.ps), self._policy, self.requests)
        return self.ps[number]

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for one in self.ps:
            one.server.close()


def weights(client: PsClient, *, pin: int = 0) -> tuple[Floats, Floats, Floats]:
    """Everything a model holds: dense values and all rows of both tables."""
    pulled = client.pull({"a": np.arange(ROWS_A), "b": np.arange(ROWS_B)}, pin=pin)
    values = pulled.dense.copy(), pulled.rows["a"].copy(), pulled.rows["b"].copy()
    pulled.release()
    return values
