"""How a member computes a batch. With tables it pulls rows first, pushes them, and contributes the rest then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.sim.ring.member import SimMember
from tests.sim.ring.tables import Tables

from elasticdl.worker.ring.core import Phase
from elasticdl.worker.ring.core.messages import BatchKey
from elasticdl.worker.ring.ports import BatchFacts

if TYPE_CHECKING:
    from tests.sim.ring.world import Choice, World


def choices_of_batches(world: World, member: SimMember) -> Iterator[Choice]:
    """The next step of a member with the batch that it computes."""
    tables, replica = world.tables, member.replica
    if not replica.has_model or member.core.phase is not Phase.OPEN:
        return
    if tables is None:
        keys = () if replica.is_done else replica.round_at(replica.step)
        for own in [one for one in keys if world.assigned.get(one) == member.name and one not in member.computed][:1]:
            yield f"{member.name} computes {own}", world.computing(member, own)
        return
    if member.absorbed is not None:
        yield f"{member.name} computes {member.absorbed}", lambda: _contribute(world, member)
    elif member.pulled is not None:
        yield f"{member.name} pushes {member.pulled}", lambda: _push(member, tables)
    else:
        key = next((one for one in _own(world, member) if _is_wanted(member, tables, one)), None)
        if key is not None and key[1] <= member.replica.step and tables.is_open(key):
            yield f"{member.name} pulls for {key}", lambda: _pull(world, member, tables, key)


def check_prepared(tables: Tables | None, batches: Sequence[BatchFacts]) -> None:
    """Refuse a commit of batches that the ps never had."""
    keys = {(facts.task, facts.batch) for facts in batches}
    if tables is not None and not keys <= tables.acknowledged:
        raise AssertionError(f"the ring commits {keys}, and the ps never had all of them")


def _own(world: World, member: SimMember) -> Iterator[BatchKey]:
    for step in range(world.rounds):
        for key in member.replica.round_at(step):
            if world.assigned.get(key) == member.name:
                yield key


def _is_wanted(member: SimMember, tables: Tables, key: BatchKey) -> bool:
    is_contributed = key[1] < member.replica.step or key in member.computed
    return not (is_contributed and tables.has(key))


def _pull(world: World, member: SimMember, tables: Tables, key: BatchKey) -> None:
    member.pulled, step = key, key[1]
    if not tables.has(key):
        tables.pulled[step].add(member.name)
    updates = tables.pull(key)
    if step < member.replica.step or tables.starts > 1 or updates == step:
        return  # It is repeated for one part of the model, with newer weights of the other part.
    lost = {one.name for one in world.members if not one.runs or one.was_gone}
    if updates != step + 1 or not tables.pulled[step + 1] & lost:
        raise AssertionError(f"{key} is computed with rows of {updates} updates")
    tables.newer_rows += 1


def _push(member: SimMember, tables: Tables) -> None:
    key, member.pulled = member.pulled, None
    if key is not None and tables.push(key):
        member.absorbed = key


def _contribute(world: World, member: SimMember) -> None:
    key, member.absorbed = member.absorbed, None
    if key is not None and member.replica.step == key[1] and key not in member.computed:
        world.computing(member, key)()
