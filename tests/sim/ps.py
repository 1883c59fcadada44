"""A simulated ps: the shipped controller, model core, request handler and executors on the virtual clock.

Simulated are only the sockets, the broker's client, and the time that the store takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

from tests.sim.process import Process
from tests.sim.runner import SimRunner

from elasticdl.ps.controller import ControllerSettings, PsController, commands, events
from elasticdl.ps.executors import ModelExecutor, StorageExecutor
from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.writer import SnapshotWriter
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.messages.events import GroupHeld, SnapshotTaken
from elasticdl.shared.messages.registers import encode_register
from elasticdl.shared.model.manifests import snapshots_folder
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Incarnation, PodName, Service, pod_number
from elasticdl.shared.process.procedures import Issued
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.frames import Tensor
from elasticdl.shared.wire.message_codec import decode_request
from elasticdl.shared.wire.messages import Push
from elasticdl.shared.wire.server import Response

if TYPE_CHECKING:
    from tests.sim.wire import Connection
    from tests.sim.world import World

STORE_S = 0.004
"""Seconds that the store takes for one object."""
OVERDUE_S = 3.0
SECONDS: Mapping[type, float] = {
    commands.RecoverShard: 3 * STORE_S,
    commands.WriteObject: STORE_S,
    commands.ListGarbage: STORE_S,
    commands.DeleteObjects: STORE_S,
    commands.LoadNextObject: STORE_S,
    commands.DropRows: STORE_S,
}
PROBES: Mapping[type, str] = {
    commands.ClaimName: "claimed",
    commands.RegisterSnapshot: "registered",
    commands.FreezePushes: "frozen",
    commands.WriteNextObject: "object",
    commands.WriteObject: "object",
    commands.LoadNextObject: "loaded",
    commands.DeleteObjects: "tidied",
}
"""What a process has just done when a command succeeded."""


def _impatient(policy: UpdatePolicy) -> UpdatePolicy:
    return replace(policy, gate=replace(policy.gate, overdue_s=OVERDUE_S)) if policy.gate else policy


class PsProcess(Process):
    """One incarnation of one ps."""

    service = Service.PS

    def __init__(self, world: World, name: PodName, run: Incarnation) -> None:
        super().__init__(world, name, run)
        spec, shape = world.job.spec, world.job.shape
        self.core = PsCore(
            plan=spec.plan,
            placement=Placement.even(spec.ps),
            number=pod_number(name),
            policy=_impatient(UpdatePolicy.of(spec)),
            observer=self,
        )
        self.address = name if shape.shared_address else self.incarnation
        self.listening = False
        self.connections: list[Connection] = []
        self._handler = PsHandler(self.core, self.incarnation, pull_wait_s=0.0, clock=self.clock)
        self._pool = BufferPool()
        settings = ControllerSettings(
            ps=name,
            incarnation=self.incarnation,
            address=self.address,
            policy=SnapshotPolicy(interval_s=spec.snapshot_interval_s, chain_max=shape.chain_max),
        )
        self.controller = PsController(self.core, SnapshotWriter(spec, name, self.incarnation), settings)
        folder = snapshots_folder(spec.storage, spec.job)
        self._storage = StorageExecutor(self.core, world.store, folder, name, drop_pause_s=0.0)
        self._model = ModelExecutor(self.core, self)
        self._runner: SimRunner[events.PsEvent, Issued[commands.PsCommand]] = SimRunner(
            self, self.controller, execute=self._execute, lane_of=lambda issued: issued.command.lane.value
        )

    async def main(self) -> None:
        self._runner.post(events.ProcessStarted())
        await self.world.loop.create_future()

    # --- requests -----------------------------------------------------------------------------------------------------

    def on_closed(self, sender: int) -> None:
        """The connection with this number has ended."""
        if self.instance.alive:
            self._handler.on_closed(sender)

    def answer(self, meta: bytes, tensors: Sequence[Tensor], sender: int) -> Response | None:
        """Answer the frame of a request that has arrived; None: this process is not there any more."""
        if not self.listening:
            return None
        bounded = self.world.staleness.before(self)
        frame = Frame(0, meta, tuple(tensors), self._pool, None)
        frame.sender = sender
        response = self._handler(frame)
        request = decode_request(meta, tensors)
        self.world.staleness.after(self, request, response, bounded)
        if isinstance(request, Push):
            self.probe("push")
        return response if self.instance.alive else None

    def initialised(self) -> None:
        """See ``Observer``: a thread of its own reports it."""
        self.world.loop.call_soon(self._runner.post, events.ModelCreated(), context=self.instance.context)

    def serving(self) -> None:
        """Nothing waits for it."""

    def stepped(self, step: int) -> None:
        """See ``Observer``. Simulated jobs take no snapshots by steps and evaluate by time."""
        assert not self.controller.is_notable(step)

    # --- what the executors call --------------------------------------------------------------------------------------

    def listen(self) -> None:
        """See ``Endpoint``."""
        self.listening = True

    def join_job(self) -> None:
        """See ``Endpoint``."""
        self.spawn(self.heartbeat)
        self.spawn(self._watch)

    async def _watch(self) -> None:
        async for name, entry in self.bus.registers.watch():
            self._runner.post(events.KeyChanged(name=name, entry=entry))

    async def _take_order(self, command: Command, cause: str) -> None:
        self.controller.admit(command)
        self._runner.post(events.OrderReceived(command=command, cause=cause))

    # --- lanes --------------------------------------------------------------------------------------------------------

    async def _execute(self, issued: Issued[commands.PsCommand]) -> events.PsEvent:
        command = issued.command
        try:
            if command.lane is commands.Lane.BROKER:
                result = await self._ask_broker(command)  # type: ignore[arg-type]
            elif command.lane is commands.Lane.STORAGE:
                result = await self._use_storage(command)  # type: ignore[arg-type]
            else:
                result = self._model.execute(command)  # type: ignore[arg-type]
        except ElasticDLError as error:
            return events.CommandFailed(number=issued.number, error=error)
        self._pass_probe(command, result)
        return events.CommandSucceeded(number=issued.number, result=result)

    def _pass_probe(self, command: commands.PsCommand, result: Any) -> None:
        match command:
            case commands.RecoverShard() if result.shard is not None and not result.uri:
                self.probe("gathered")
            case commands.Listen() if self.core.shard is not None:
                self.probe("restored")
            case commands.AdoptPlacement() if result:
                self.probe("adopted")
            case _ if type(command) in PROBES:
                self.probe(PROBES[type(command)])

    async def _ask_broker(self, command: commands.BrokerCommand) -> Any:
        match command:
            case commands.ReadKey(name=name):
                return await self.bus.registers.read(name)
            case commands.WriteRegister(register=register, after=after):
                return await self.bus.registers.write(self.name, encode_register(register), after=after)
            case commands.PublishEvent(event=event, cause=cause):
                if isinstance(event, SnapshotTaken) and event.move:
                    self.probe("copied")
                elif isinstance(event, GroupHeld):
                    self.probe("held")
                return await self.say(event, cause=cause)
            case commands.JoinJob():
                self.join_job()
                return await self.bus.signals.serve_orders(self.name, self._take_order)
            case _:
                assert_never(command)

    async def _use_storage(self, command: commands.StorageCommand) -> Any:
        if isinstance(command, commands.WriteNextObject):
            uri, data = command.upload.next_object()
            await asyncio.sleep(STORE_S)
            self.world.store.write(uri, data)
            return not command.upload.written
        if isinstance(command, commands.ListGarbage):
            self.probe("tidies")
        if seconds := SECONDS.get(type(command)):
            await asyncio.sleep(seconds)
        return self._storage.execute(command)
