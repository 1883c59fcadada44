"""A ps on the virtual clock: the real core, engine, history, writer and restore, with a shell that awaits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

import numpy as np
from tests.sim import ps_moves
from tests.sim.process import Process
from tests.sim.ps_moves import STORE_S
from tests.sim.transport import settle

from elasticdl.ps.moves.copies import Copies
from elasticdl.ps.moves.holder import Holder, HoldOrder
from elasticdl.ps.shard.admission import RefusedError, check_known
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots.history import SnapshotHistory
from elasticdl.ps.snapshots.next_cut import next_cut
from elasticdl.ps.snapshots.recovery import NothingLeftError, recover
from elasticdl.ps.snapshots.requests import Copy, Order
from elasticdl.ps.snapshots.writer import SnapshotWriter, delete_snapshot
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import FencedError, PermanentError, ProtocolError, TransientError
from elasticdl.shared.messages.commands import ClosePin, Command, HoldGroup, OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import (
    GroupHeld,
    GroupLedger,
    ModelInitialised,
    ModelPinned,
    PsStarted,
    SnapshotTaken,
)
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.manifests import DamagedError, damage, decode_manifest, snapshots_folder
from elasticdl.shared.model.placement import Placement, decode_placement
from elasticdl.shared.names import PodName, Service
from elasticdl.shared.wire.messages import (
    Initialise,
    NextBatch,
    Pull,
    Push,
    Refusal,
    RefusalKind,
    Reply,
    Request,
)

if TYPE_CHECKING:
    from tests.sim.wire import Connection
    from tests.sim.world import World

RETRY_S = 1.0


class PsProcess(Process):
    """One life of one ps; follows ``PsService`` and ``SnapshotThread`` step by step."""

    service = Service.PS

    def __init__(self, world: World, name: PodName) -> None:
        super().__init__(world, name)
        spec, shape = world.job.spec, world.job.shape
        self.core = PsCore(
            plan=spec.plan,
            placement=Placement.even(spec.ps),
            number=int(name.rsplit("-", 1)[1]),
            policy=UpdatePolicy(grads_to_wait=spec.grads_to_wait),
            observer=self,
        )
        self.address = name if shape.shared_address else self.incarnation
        self.listening = False
        self.connections: list[Connection] = []
        self._writer = SnapshotWriter(world.store, spec, name, self.incarnation)
        self._history = SnapshotHistory(chain_max=shape.chain_max, chains_kept=2)
        self._register = PsRegister(address=self.address, incarnation=self.incarnation)
        self._register_seq = 0
        self._orders: deque[Order | HoldOrder] = deque()
        self._holder = Holder(self.core, world.store, name)
        self._copies = Copies(self.core)
        self._dropped_rows = 0
        self._taken: dict[int, SnapshotTaken] = {}
        self._untold: tuple[SnapshotTaken | GroupHeld, str] | None = None
        self._initialised = False
        self._dropping = False
        self._snapshots = 0
        self._due_s = 0.0
        self._wake: asyncio.Future[None] | None = None

    async def main(self) -> None:
        await self._claim()
        entry = await self.bus.registers.read(PLACEMENT)
        if entry is not None:
            self.core.adopt(decode_placement(entry.value))
        restored, ledgers = await self._restore() if self._register.manifest else ("", ())
        self.listening = True
        started = PsStarted(address=self.address, ledgers=ledgers, restored_from=restored, claim=self._register_seq)
        await self.say(started)
        if restored or not self.core.owned:
            self.core.open_for_business()
        if not self.core.owned:
            self._initialised = True
        self._plan_next()
        self.spawn(self._take_snapshots)
        self.spawn(self.beat)
        self.spawn(self._watch_register)
        await self.bus.signals.serve_orders(self.name, self._take_order)
        await self.world.loop.create_future()

    def answer(self, request: Request) -> Reply | None:
        """Answer a request that has arrived; None: this process is no more."""
        if not self.listening:
            return None
        try:
            reply = self._answer(request)
        except RefusedError as error:
            reply = error.refusal
        except ProtocolError as error:
            reply = Refusal(kind=RefusalKind.PROTOCOL, message=str(error))
        if isinstance(request, Push):
            self.probe("push")
        return reply if self.life.alive else None

    def initialised(self) -> None:
        """See ``Observer``."""
        self.wake()

    def stepped(self, step: int) -> None:
        """See ``Observer``."""

    def wake(self) -> None:
        """Something is to be done about snapshots."""
        if self._wake is not None:
            settle(self._wake, None)

    def _answer(self, request: Request) -> Reply:
        match request:
            case Push():
                return self.core.push(request)
            case Pull():
                dense, rows = self.core.pull_size(request)
                return self.core.pull(request, dense=np.empty(dense, np.float32), rows=np.empty(rows, np.float32))
            case NextBatch():
                return self.core.next_batch(request)
            case Initialise():
                return self.core.initialise(request)
            case _:
                assert_never(request)

    # --- start ----------------------------------------------------------------------------------------------------

    async def _claim(self) -> None:
        entry = await self.bus.registers.read(self.name)
        claim = self._register
        if entry is not None:
            former = decode_register(entry.value)
            claim = replace(claim, manifest=former.manifest, step=former.step, older=former.older)
            self._register_seq = entry.seq
        await self._write_register(claim)
        self.probe("claimed")

    async def _watch_register(self) -> None:
        async for name, entry in self.bus.registers.watch():
            if name == PLACEMENT:
                if self.core.adopt(decode_placement(entry.value)):
                    self._dropping = True
                    self.wake()
                    self.probe("adopted")
            elif name == self.name and entry.seq > self._register_seq:
                owner = decode_register(entry.value).incarnation
                if owner != self.incarnation:
                    raise FencedError(f"{self.name} was taken over by {owner}")

    async def _restore(self) -> tuple[str, tuple[GroupLedger, ...]]:
        await asyncio.sleep(STORE_S * 3)
        try:
            spec = self.world.job.spec
            recovered = recover(self.world.store, self.core, self._register, snapshots_folder(spec.storage, spec.job))
        except NothingLeftError as error:
            await self._say_damages(error.damages, "")
            raise
        if recovered.shard is None:
            await self._say_damages(recovered.damages, "")
            return "", ()
        self.core.install(recovered.shard)
        self._history.adopt(recovered.kept)
        self._initialised = True
        if not recovered.uri:
            self.probe("gathered")
            await self._write(flush=False)
        uri = recovered.uri or self._history.newest[0]
        await self._say_damages(recovered.damages, uri)
        if recovered.uri and recovered.damages:
            older = tuple(one for one, _ in reversed(recovered.kept[:-1]))
            step = recovered.kept[-1][1].step
            await self._write_register(replace(self._register, manifest=uri, step=step, older=older))
        self.probe("restored")
        return uri, recovered.shard.ledgers

    async def _say_damages(self, damages: Iterable[DamagedError], instead: str) -> None:
        for error in damages:
            await self.say(damage(self.name, error, instead))

    async def _write_register(self, register: PsRegister) -> None:
        value = encode_register(register)
        self._register_seq = await self.bus.registers.write(self.name, value, after=self._register_seq)
        self._register = register

    # --- orders ---------------------------------------------------------------------------------------------------

    async def _take_order(self, command: Command, cause: str) -> None:
        check_known(command, self.core.placement.version)
        match command:
            case TakeSnapshot():
                self._orders.append(Order.of(command, cause))
                self.wake()
            case HoldGroup():
                self.spawn(lambda: self._order_hold(command, cause))
            case OpenPin(evaluation=evaluation):
                self.core.check_serves()
                self.spawn(lambda: self._open_pin(evaluation, cause))
            case ClosePin(evaluation=evaluation):
                self.core.close_pin(evaluation)
            case _:
                raise PermanentError(f"{self.name} does not know what to do with {command}")

    async def _order_hold(self, command: HoldGroup, cause: str) -> None:
        manifest = command.manifest
        if not manifest:
            entry = await self.bus.registers.read(command.donor)
            manifest = decode_register(entry.value).manifest if entry else ""
        order = HoldOrder(move=command.move, partitions=command.partitions, manifest=manifest, cause=cause)
        self._orders.append(order)
        self.wake()

    async def _open_pin(self, evaluation: int, cause: str) -> None:
        try:
            step = self.core.open_pin(evaluation)
        except RefusedError:
            return
        await self.say(ModelPinned(evaluation=evaluation, step=step), cause=cause)

    # --- snapshots ------------------------------------------------------------------------------------------------

    async def _take_snapshots(self) -> None:
        if self._history:
            await self._tidy()
        while True:
            while not self._is_due() and not self._dropping:
                self._wake = self.world.loop.create_future()
                left_s = max(0.0, self._due_s - self.world.loop.time()) or self.world.job.spec.snapshot_interval_s
                self.world.loop.later(left_s, settle, self._wake, None)
                await self._wake
            order = self._orders[0] if self._orders and self._initialised else None
            try:
                if self._is_due():
                    await self._attend(order)
            except TransientError:
                await asyncio.sleep(RETRY_S)
            await self._drop_rows()

    async def _drop_rows(self) -> None:
        self._dropping = False
        while not self._is_due():
            if not self.core.drop_some():
                return
            await asyncio.sleep(STORE_S)
        self._dropping = self._dropping or self.core.has_undropped

    def _is_due(self) -> bool:
        if self._initialised and self._orders:
            return True
        if not self.core.has_model:
            return False
        return (
            not self._initialised
            or self._untold is not None
            or bool(self._orders)
            or (self.world.loop.time() >= self._due_s and not self.core.frozen)
        )

    async def _tidy(self) -> None:
        self.probe("tidies")
        await asyncio.sleep(STORE_S)
        try:
            garbage = self._writer.garbage(self._history.snapshots)
            await self._confirm()
            await asyncio.sleep(STORE_S)
            self._writer.delete(garbage)
        except FencedError:
            raise
        except (TransientError, PermanentError):
            return

    async def _confirm(self) -> None:
        """Make sure that the name was ours when the garbage was listed."""
        await self._write_register(self._register)

    async def _attend(self, order: Order | HoldOrder | None) -> None:
        await self._tell()
        if not self._initialised:
            await self._take(None)
            await self._tell()
            await self.say(ModelInitialised(signature=self.world.job.signature.digest(), parameters=0))
            self._initialised = True
            self.core.open_for_business()
        elif isinstance(order, HoldOrder):
            await ps_moves.hold(self, order)
        elif order is not None and not self.core.has_model:
            pass
        elif (
            order is not None and order.request in self._taken and self._taken[order.request].manifest != order.damaged
        ):
            self._untold = self._taken[order.request], order.cause
        elif order is not None and order.copy:
            await ps_moves.copy(self, order, order.copy)
        else:
            await self._take(order)
        if order is not None:
            self._orders.popleft()
        await self._tell()
        self._delete_old()

    async def _take(self, order: Order | None) -> None:
        if order and order.damaged:
            self._history.discard(order.damaged)
        written = await self._write(flush=order is not None and order.flush)
        if not written and order is None:
            self._plan_next()
            return
        uri, manifest = self._history.newest
        taken = SnapshotTaken(
            manifest=uri,
            request=order.request if order else 0,
            ledgers=manifest.ledgers,
            size_bytes=0,
            seconds=0.0,
        )
        if order:
            self._taken[order.request] = taken
        self._untold = taken, order.cause if order else ""
        self._plan_next()

    async def _tell(self) -> None:
        if self._untold is not None:
            taken, cause = self._untold
            await self.say(taken, cause=cause)
            self._untold = None

    def _delete_old(self) -> None:
        for old in self._history.obsolete():
            try:
                delete_snapshot(self.world.store, *old)
            except (TransientError, PermanentError):
                return
            self._history.forget(old)

    async def _write(self, *, flush: bool, extend: bool = False) -> bool:
        following = next_cut(self.core, self._history, self._dropped_rows, flush=flush, extend=extend)
        if following is None:
            return False
        base, cut = following
        try:
            uri, data = await self._write_objects(cut, base)
            older = self._history.older_than(uri, decode_manifest(data, uri))
            await self._write_register(replace(self._register, manifest=uri, step=cut.step, older=older))
        except BaseException:
            cut.close()
            raise
        finally:
            self._snapshots += 1
        cut.close(finished=True)
        self._dropped_rows = cut.dropped_rows
        self._history.add(uri, decode_manifest(data, uri))
        self.probe("registered")
        return True

    async def _write_objects(self, cut: ShardCut, base: str, copy: Copy | None = None) -> tuple[str, bytes]:
        uri, data = "", b""
        for uri, content in self._writer.objects(self.core, cut, number=self._snapshots, base=base, copy=copy):
            await asyncio.sleep(STORE_S)
            data = bytes(content)
            self.world.store.write(uri, data)
            self.probe("object")
        return uri, data

    def _plan_next(self) -> None:
        self._due_s = self.world.loop.time() + self.world.job.spec.snapshot_interval_s
