"""The audit at the end of a job: compares every ledger with the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.placement import PARTITIONS, ranges_of
from elasticdl.shared.names import PodName


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        exact: every group absorbed every batch of every epoch exactly once.
        batches: batches that each group absorbed (the least of them).
        records: records that each group absorbed (the least of them).
        missing: ranges of tasks that some group lacks.
        problems: one sentence for each difference that missing tasks don't explain: a doubled batch, other records.
    """

    exact: bool
    groups: int
    batches: int
    records: int
    missing: tuple[tuple[int, int], ...] = ()
    problems: tuple[str, ...] = ()


def audit(plan: Plan, checksum: int, ledgers: Mapping[PodName, tuple[GroupLedger, ...]]) -> AuditResult:
    """Compare every group's ledger with the plan.

    Args:
        checksum: sum of the record hashes of the whole plan, according to the data's index.
    """
    missing = RangeSet()
    problems = [f"{ps} has no group in its final snapshot" for ps, held in sorted(ledgers.items()) if not held]
    groups = [(f"{ps}/{group.group}", group.ledger) for ps, held in sorted(ledgers.items()) for group in held]
    for name, ledger in groups:
        lacks = RangeSet(RangeSet(ledger.finished).gaps(0, plan.tasks))
        for start, end in lacks.ranges():
            missing.add_range(start, end)
        if not lacks:
            problems += _differences(name, ledger, plan, checksum)
        elif ledger.step > plan.batches:
            problems.append(
                f"{name} absorbed {ledger.step} batches of {plan.batches} and still lacks {len(lacks)} tasks"
            )
    if not ledgers:
        problems.append("there is no final snapshot")
    else:
        problems += _coverage(ledgers)
    return AuditResult(
        exact=not missing and not problems,
        groups=len(groups),
        batches=min((ledger.step for _, ledger in groups), default=0),
        records=min((ledger.records for _, ledger in groups), default=0),
        missing=tuple(missing.ranges()),
        problems=tuple(problems),
    )


def _coverage(ledgers: Mapping[PodName, tuple[GroupLedger, ...]]) -> list[str]:
    """Check that every partition of the model is in exactly one group."""
    found: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
    for ps, groups in sorted(ledgers.items()):
        for group in groups:
            for start, end in group.partitions:
                for partition in range(start, end):
                    found[partition].append(ps)
    nowhere = ranges_of(partition for partition, holders in found.items() if not holders)
    twice = ranges_of(partition for partition, holders in found.items() if len(holders) > 1)
    problems = [f"partitions {start} to {end - 1} of the model are in no final snapshot" for start, end in nowhere]
    return problems + [f"partitions {start} to {end - 1} of the model are in several groups" for start, end in twice]


def _differences(name: str, ledger: LedgerRecord, plan: Plan, checksum: int) -> list[str]:
    facts = (
        ("batches", ledger.step, plan.batches),
        ("records", ledger.records, plan.records),
        ("record checksum", ledger.checksum, checksum),
    )
    found = [f"{name}: {what} {have}, the plan has {want}" for what, have, want in facts if have != want]
    if ledger.open:
        found.append(f"{name}: tasks {sorted(ledger.open)[:5]} are partly absorbed although the plan is complete")
    return found
