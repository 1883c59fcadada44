"""Which partitions are taken from which snapshot when no single one has all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.ps.example import PLAN, signature, spec

from elasticdl.ps.snapshots.recovery import choose
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.model.manifests import GroupState, Manifest
from elasticdl.shared.model.placement import ALL, Ranges
from elasticdl.shared.model.rows.snapshot_rows import Chain
from elasticdl.shared.model.stored_spec import StoredSpec
from elasticdl.shared.names import JobId, PodName, new_incarnation


def chain(uri: str, *groups: tuple[Ranges, int]) -> Chain:
    """A snapshot with groups of these partitions and steps."""
    manifest = Manifest(
        job=JobId("job"),
        ps=PodName("ps-0"),
        incarnation=new_incarnation(),
        number=0,
        plan=PLAN.fingerprint,
        spec_digest=StoredSpec(spec("memory://job")).digest,
        signature=signature().to_json(),
        placement_version=1,
        groups=tuple(
            GroupState(
                partitions=partitions,
                ledger=LedgerRecord(finished=(), open={}, step=step, records=0, checksum=0),
                iteration=step,
                rate=0.0,
                accumulated=0,
            )
            for partitions, step in groups
        ),
        chunks=(),
    )
    return [(uri, manifest)]


def chosen(chains: Sequence[Chain], wanted: Ranges) -> dict[str, Ranges]:
    return {one[-1][0]: partitions for one, partitions in choose(chains, wanted)}


def test_each_partition_is_taken_from_who_has_learned_most() -> None:
    old, new = chain("old", (ALL, 3)), chain("new", (((0, 100),), 5), (((200, 256),), 2))
    assert chosen([new, old], ALL) == {"new": ((0, 100),), "old": ((100, 256),)}
    assert chosen([new, old], ((90, 110),)) == {"new": ((90, 100),), "old": ((100, 110),)}


def test_of_equals_the_first_is_taken() -> None:
    assert chosen([chain("mine", (ALL, 3)), chain("theirs", (ALL, 3))], ALL) == {"mine": ALL}


def test_nothing_is_taken_where_something_is_nowhere() -> None:
    assert chosen([chain("half", (((0, 128),), 3))], ALL) == {}
    assert chosen([], ALL) == {}
