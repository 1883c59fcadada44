"""Which batches of a round this member has, and which all members offer to the leader.

A gradient stays where it was computed until its round is committed. So a member that survives a break offers it again
in the next generation, and no batch that a survivor has is computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from elasticdl.shared.errors import ProtocolError
from elasticdl.worker.ring.core.messages import BatchKey, Entry, Go, Offer, Round
from elasticdl.worker.ring.ports import BatchFacts


def key_of(facts: BatchFacts) -> BatchKey:
    """The key of a batch."""
    return facts.task, facts.batch


class Contributions:
    """Batches of rounds that are not committed."""

    def __init__(self) -> None:
        self._own: dict[BatchKey, Offer] = {}
        self._offered: dict[int, dict[BatchKey, Entry]] = {}
        """Leader: by step, what members of the present generation offer."""
        self._rounds: dict[int, Round] = {}

    def keep(self, offer: Offer) -> bool:
        """Note a batch of this member; False: it has that batch already."""
        key = key_of(offer.facts)
        known = self._own.setdefault(key, offer)
        return known is offer

    def owns(self, key: BatchKey) -> bool:
        """Whether this member has a batch."""
        return key in self._own

    @property
    def all_own(self) -> Collection[Offer]:
        """The batches that this member has."""
        return self._own.values()

    def own(self, step: int) -> Iterator[Offer]:
        """The batches that this member has of the round that makes ``step + 1``."""
        return iter([offer for offer in self._own.values() if offer.step == step])

    def offer(self, rank: int, offer: Offer) -> None:
        """Leader: a member offers a batch. The first offer counts.

        Raises:
            ProtocolError: the ledgers of two members differ.
        """
        if self._rounds.setdefault(offer.step, offer.round) != offer.round:
            raise ProtocolError(f"members name different batches for step {offer.step + 1}")
        offered = self._offered.setdefault(offer.step, {})
        offered.setdefault(key_of(offer.facts), Entry(rank=rank, facts=offer.facts))

    def is_offered(self, step: int) -> bool:
        """Leader: whether there are batches of the round that makes ``step + 1``."""
        return bool(self._offered.get(step))

    def go(self, step: int) -> Go | None:
        """Leader: what makes ``step + 1``; None while batches are missing."""
        offered = self._offered.get(step)
        if not offered or len(offered) < len(self._rounds[step]):
            return None
        return Go(step=step, entries=tuple([offered[key] for key in self._rounds[step]]))

    def on_committed(self, step: int) -> None:
        """Drop what is of no use once ``step`` rounds are committed."""
        self._own = {key: offer for key, offer in self._own.items() if offer.step >= step}
        for past in [one for one in self._offered if one < step]:
            del self._offered[past], self._rounds[past]

    def on_generation(self) -> None:
        """Forget what the members of a former generation offered."""
        self._offered.clear()
        self._rounds.clear()

    def clear(self) -> None:
        """Drop everything: the state is another one now."""
        self._own.clear()
        self.on_generation()
