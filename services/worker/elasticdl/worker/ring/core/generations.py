"""Who is in a generation, and what differs between two."""

from __future__ import annotations

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


def keeps_all(present: Generation | None, following: Generation) -> bool:
    """Whether all present members are in the next generation, so that the round can be finished before it."""
    return set(identities(present)) <= set(identities(following))


def joined(present: Generation | None, following: Generation) -> int:
    """How many members of a generation are not in the one before."""
    return len(set(identities(following)) - set(identities(present)))
