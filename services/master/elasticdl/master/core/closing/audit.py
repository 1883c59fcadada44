"""The audit at the end of a job: compares every ledger with the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.rangeset import RangeSet
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.placement import PARTITIONS
from elasticdl.shared.names import PodName, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """The result of an audit.

    Attributes:
        exact: every group absorbed every batch of every epoch exactly once, but those of ``skipped``.
        batches: batches that each group absorbed (the least of them).
        records: records that each group absorbed (the least of them).
        missing: ranges of tasks that some group lacks.
        skipped: ranges of tasks that the user has skipped and some group lacks.
        skipped_records: records of these that some group has not absorbed.
        problems: one sentence for each difference that missing tasks don't explain: a doubled batch, other records.
    """

    exact: bool
    groups: int
    batches: int
    records: int
    missing: tuple[tuple[int, int], ...] = ()
    skipped: tuple[tuple[int, int], ...] = ()
    skipped_records: int = 0
    problems: tuple[str, ...] = ()


def audit(
    plan: Plan,
    checksum: int,
    ledgers: Mapping[PodName, tuple[GroupLedger, ...]],
    skipped: RangeSet | None = None,
    *,
    apart: PodName | None = None,
) -> AuditResult:
    """Compare every group's ledger with the plan.

    Args:
        checksum: sum of the record hashes of the whole plan, according to the data's index. The hashes of skipped
            records are unknown, so with them the ledgers are only compared with each other.
        skipped: tasks that need not be in a ledger, nor as a whole.
        apart: the replica of a ring that has tables beside it: its partitions are those of the dense variables.
    """
    skipped = skipped or RangeSet()
    missing, skipped_tasks, skipped_records = RangeSet(), RangeSet(), 0
    problems = [f"{ps} has no group in its final snapshot" for ps, held in sorted(ledgers.items()) if not held]
    groups = [(f"{ps}/{group.group}", group.ledger) for ps, held in sorted(ledgers.items()) for group in held]
    for name, ledger in groups:
        lacks = RangeSet(RangeSet(ledger.finished).gaps(0, plan.tasks))
        left_out = _LeftOut.of(plan, ledger, lacks.intersection(skipped))
        lacks = lacks.difference(skipped)
        skipped_tasks = skipped_tasks.union(left_out.tasks)
        skipped_records = max(skipped_records, left_out.records)
        for start, end in lacks.ranges():
            missing.add_range(start, end)
        if not lacks:
            problems += _differences(name, ledger, plan, checksum, left_out)
        elif ledger.step > plan.batches:
            problems.append(
                f"{name} absorbed {ledger.step} batches of {plan.batches} and still lacks {len(lacks)} tasks"
            )
    if not ledgers:
        problems.append("there is no final snapshot")
    else:
        rest = {ps: held for ps, held in ledgers.items() if ps != apart}
        problems += [*_coverage(rest), *(_coverage({apart: ledgers.get(apart, ())}) if apart else ())]
        problems += _unequal([ledger for _, ledger in groups]) if skipped_tasks else []
    return AuditResult(
        exact=not missing and not problems,
        groups=len(groups),
        batches=min((ledger.step for _, ledger in groups), default=0),
        records=min((ledger.records for _, ledger in groups), default=0),
        missing=tuple(missing.ranges()),
        skipped=tuple(skipped_tasks.ranges()),
        skipped_records=skipped_records,
        problems=tuple(problems),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeftOut:
    """What a group lacks of skipped tasks, each of which it may have begun."""

    tasks: RangeSet
    batches: int
    records: int

    @classmethod
    def of(cls, plan: Plan, ledger: LedgerRecord, tasks: RangeSet) -> _LeftOut:
        batches = [
            (task, batch)
            for task in map(TaskId, tasks)
            for batch in range(ledger.open.get(task, 0), plan.batches_of(task))
        ]
        return cls(tasks=tasks, batches=len(batches), records=sum(plan.records_of(*each) for each in batches))


def _unequal(ledgers: Sequence[LedgerRecord]) -> list[str]:
    """Check that groups with the same batches have the same records, which must hold whatever was skipped."""
    checksums: dict[tuple[object, ...], set[int]] = {}
    for ledger in ledgers:
        checksums.setdefault((ledger.finished, *sorted(ledger.open.items())), set()).add(ledger.checksum)
    differ = any(len(each) > 1 for each in checksums.values())
    return ["ledgers with the same batches have different record checksums"] if differ else []


def _coverage(ledgers: Mapping[PodName, tuple[GroupLedger, ...]]) -> list[str]:
    """Check that every partition of the model is in exactly one group."""
    found, twice = RangeSet(), RangeSet()
    for start, end in (each for groups in ledgers.values() for group in groups for each in group.partitions):
        twice = twice.union(found.intersection(RangeSet([(start, end)])))
        found.add_range(start, end)
    nowhere = found.gaps(0, PARTITIONS)
    problems = [f"partitions {start} to {end - 1} of the model are in no final snapshot" for start, end in nowhere]
    several = twice.ranges()
    return problems + [f"partitions {start} to {end - 1} of the model are in several groups" for start, end in several]


def _differences(name: str, ledger: LedgerRecord, plan: Plan, checksum: int, left_out: _LeftOut) -> list[str]:
    facts = (
        ("batches", ledger.step, plan.batches - left_out.batches),
        ("records", ledger.records, plan.records - left_out.records),
        ("record checksum", ledger.checksum, checksum if not left_out.tasks else ledger.checksum),
    )
    found = [f"{name}: {what} {have}, the plan has {want}" for what, have, want in facts if have != want]
    if begun := [task for task in sorted(ledger.open) if task not in left_out.tasks]:
        found.append(f"{name}: tasks {begun[:5]} are partly absorbed although the plan is complete")
    return found
