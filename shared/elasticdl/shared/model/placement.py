"""Sharding of a model: its virtual partitions, and the versioned table that says which ps owns each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING

from elasticdl.shared.errors import ProtocolError, UnreadableError
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.names import SERVED_REPLICA, GroupId, PodName, Service, pod_name
from elasticdl.shared.proto.fields import Uint64
from elasticdl.shared.proto.schema import Schema

if TYPE_CHECKING:
    from elasticdl.shared.job.spec import JobSpec

PARTITIONS = 256

Ranges = tuple[tuple[int, int], ...]
"""Partitions as sorted, disjoint ranges ``[start, end)``."""
ALL: Ranges = ((0, PARTITIONS),)


def ranges_of(partitions: Iterable[int]) -> Ranges:
    """Partitions as ranges."""
    return tuple(RangeSet((one, one + 1) for one in partitions).ranges())


def group_id(partitions: Ranges) -> GroupId:
    """Name of the group that has these partitions, e.g. ``0-127``."""
    return GroupId(",".join(f"{start}-{end - 1}" for start, end in partitions))


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The table from partition to ps.

    Attributes:
        version: numbered from 1; a request that was split by an older one is answered MOVED.
        owners: number of the owning ps for each of the 256 partitions.
    """

    version: Uint64
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.owners) != PARTITIONS or min(self.owners) < 0:
            raise ValueError(f"a placement names an owner for each of {PARTITIONS} partitions")

    @classmethod
    def even(cls, ps: int, *, first: int = 0) -> Placement:
        """Version 1: every ps, numbered from ``first`` on, has equally many neighbouring partitions."""
        if not 1 <= ps <= PARTITIONS:
            raise ValueError(f"{ps} ps: there can be 1 to {PARTITIONS}")
        return cls(version=1, owners=tuple(first + partition * ps // PARTITIONS for partition in range(PARTITIONS)))

    @classmethod
    def first_of(cls, spec: JobSpec) -> Placement:
        """Version 1 of a job. Beside a ring it places the tables: the dense variables are in each replica."""
        return cls.even(spec.ps_pods, first=1) if spec.has_tables_beside_ring else cls.even(spec.ps)

    @property
    def of_replica(self) -> Placement:
        """The same version for the dense variables of a job with a ring: all of them are in each replica."""
        return Placement(version=self.version, owners=(0,) * PARTITIONS)

    def __hash__(self) -> int:
        return self.version  # Owners almost never differ where versions do not.

    @cached_property
    def holders(self) -> tuple[int, ...]:
        """Numbers of the ps that own something, ascending."""
        return tuple(sorted(set(self.owners)))

    @property
    def gate(self) -> int:
        """Number of the ps that admits pulls when staleness is bounded: the one with partition 0."""
        return self.owners[0]

    @cached_property
    def holder_names(self) -> tuple[PodName, ...]:
        """Names of the ``holders``."""
        return tuple(pod_name(Service.PS, number) for number in self.holders)

    def owner_names(self, spec: JobSpec) -> tuple[PodName, ...]:
        """Names of all that have a part of a job's model: the ``holders``, and the leader of a ring beside them."""
        return (SERVED_REPLICA, *self.holder_names) if spec.has_tables_beside_ring else self.holder_names

    @cached_property
    def sizes(self) -> Mapping[int, int]:
        """Number of a ps that owns something -> how many partitions."""
        return Counter(self.owners)

    def partitions(self, ps: int) -> Ranges:
        """What a ps owns."""
        return self._ranges.get(ps, ())

    @cached_property
    def _ranges(self) -> dict[int, Ranges]:
        ranges: dict[int, Ranges] = {}
        start = 0
        for owner, run in groupby(self.owners):
            end = start + len(list(run))
            ranges[owner] = (*ranges.get(owner, ()), (start, end))
            start = end
        return ranges

    def moved(self, partitions: Ranges, *, to: int, version: int) -> Placement:
        """The table after a move."""
        owners = list(self.owners)
        for start, end in partitions:
            owners[start:end] = [to] * (end - start)
        return Placement(version=version, owners=tuple(owners))


SCHEMA = Schema("elasticdl/shared/proto/placement.proto", "elasticdl.v1.stored", (Placement,))
_PLACEMENT = SCHEMA.codec(Placement)
encode_placement = _PLACEMENT.encode
"""The table as the value of its register."""


def decode_placement(data: bytes) -> Placement:
    """Inverse of ``encode_placement``. Raises ``UnreadableError`` for bytes that are no table."""
    try:
        return _PLACEMENT.decode(data)
    except ProtocolError as error:
        raise UnreadableError("the placement of the job's partitions", str(error)) from error
