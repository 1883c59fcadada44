"""Who is in a generation, and what differs between two."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.names import Incarnation, PodName
from elasticdl.worker.ring.ports import Generation

Identity = tuple[PodName, Incarnation]


def identities(generation: Generation | None) -> tuple[Identity, ...]:
    """The members by rank."""
    members = generation.members if generation is not None else ()
    return tuple([(member.worker, member.incarnation) for member in members])


def rank_in(generation: Generation, identity: Identity) -> int | None:
    """The rank of a process; None: it is no member."""
    members = identities(generation)
    return members.index(identity) if identity in members else None


def ring_order(generation: Generation) -> Sequence[int]:
    """The ranks in the order in which sums travel: one link of each node crosses the network.

    Members on one node are neighbours. The nodes follow each other by their first members, so an order changes only
    where the members do.
    """
    nodes = [member.node for member in generation.members]
    return sorted(range(len(nodes)), key=lambda rank: nodes.index(nodes[rank]))


def keeps_all(present: Generation | None, following: Generation) -> bool:
    """Whether all present members are in the next generation, so that the round can be finished before it."""
    return set(identities(present)) <= set(identities(following))


def joined(present: Generation | None, following: Generation) -> int:
    """How many members of a generation are not in the one before."""
    return len(set(identities(following)) - set(identities(present)))
