"""The set of ps that absorbed a task, as one number, so that an event has the same size for any number of ps."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b

from elasticdl.shared.names import Incarnation, PodName

_DIGEST_BYTES = 7
"""As a varint of protobuf such a number takes 8 bytes, and 10 bytes with one byte more."""


def ps_set_digest(incarnations: Mapping[PodName, Incarnation]) -> int:
    """Digest of some ps with their incarnations, at least 1; it does not depend on their order."""
    return _digest(tuple(sorted(incarnations.items())))


@lru_cache(maxsize=16)  # Every task asks, and the ps are the same for hours.
def _digest(incarnations: tuple[tuple[PodName, Incarnation], ...]) -> int:
    text = ";".join(f"{ps}={incarnation}" for ps, incarnation in incarnations)
    return int.from_bytes(blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest(), "little") or 1
