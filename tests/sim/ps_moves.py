"""What a simulated ps does about moves; follows ``SnapshotThread`` step by step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from elasticdl.ps.moves.holder import HoldOrder
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.snapshots.requests import Copy, Order
from elasticdl.shared.errors import FencedError, PermanentError, UserError
from elasticdl.shared.messages.events import GroupHeld, SnapshotTaken
from elasticdl.shared.model.manifests import decode_manifest

if TYPE_CHECKING:
    from tests.sim.ps import PsProcess

STORE_S = 0.004
"""Seconds that the store takes for one object."""


async def hold(ps: PsProcess, order: HoldOrder) -> None:
    held: GroupHeld | None = None
    try:
        if not ps._holder.begin(order):
            return
        if ps._holder.wants_snapshot:
            await ps._write(flush=False)
            ps._plan_next()
        for step in ps._holder.steps(order):
            held = step
            ps.probe("loaded")
            await asyncio.sleep(STORE_S)
    except FencedError:
        raise
    except (PermanentError, UserError, RefusedError) as error:
        held = GroupHeld(move=order.move, manifest=order.manifest, failure=str(error))
    if held is None:
        return
    if not held.failure:
        await register_held(ps, order.move)
    ps.probe("held")
    ps._untold = held, order.cause


async def register_held(ps: PsProcess, move: int) -> None:
    if not ps._holder.may_be_referred_to:
        await ps._write(flush=False, extend=True)
        return
    copies = ps._holder.unregistered
    if not copies:
        return
    base = ps._holder.base(ps._history)
    uri, data = ps._writer.reference(ps.core, base, copies, number=ps._snapshots, move=move)
    ps._snapshots += 1
    await asyncio.sleep(STORE_S)
    ps.world.store.write(uri, data)
    ps.probe("object")
    manifest = decode_manifest(data, uri)
    older = ps._history.older_than(uri, manifest)
    await ps._write_register(replace(ps._register, manifest=uri, step=manifest.step, older=older))
    ps._history.add(uri, manifest)
    ps._holder.registered()
    ps.probe("registered")


async def copy(ps: PsProcess, order: Order, copied: Copy) -> None:
    if order.move <= ps.core.placement.version:
        return
    if order.freeze:
        ps.core.freeze(order.move)
        ps.probe("frozen")
    cut = ps._copies.cut(order.move)
    try:
        uri, data = await ps._write_objects(cut, ps._copies.base, copied)
    finally:
        cut.close()
        ps._snapshots += 1
    ps._copies.add(uri, cut)
    taken = SnapshotTaken(
        manifest=uri,
        request=order.request,
        ledgers=decode_manifest(data, uri).ledgers,
        size_bytes=0,
        seconds=0.0,
        move=order.move,
    )
    ps._taken[order.request] = taken
    ps._untold = taken, order.cause
    ps.probe("copied")
