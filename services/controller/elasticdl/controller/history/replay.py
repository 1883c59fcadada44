"""Folds the log of a fleet, and decides again. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elasticdl.controller.core import JobTarget, Planner, Policy, View
from elasticdl.controller.history.records import Record


@dataclass(slots=True)
class Fleet:
    """What a log says up to a record.

    Attributes:
        number: of the record, from 1; 0: none.
        time_s: its time.
        targets: by job.
        decided: records with other targets than before, the newest last: number, time, target.
    """

    number: int = 0
    time_s: float = 0.0
    view: View = field(default_factory=View)
    targets: dict[str, JobTarget] = field(default_factory=dict)
    decided: list[tuple[int, float, JobTarget]] = field(default_factory=list)

    def add(self, record: Record) -> None:
        """Add the next record."""
        self.number += 1
        self.time_s = record.time_s
        self.view.apply(record.changes)
        for job, target in record.targets.items():
            if target is None:
                self.targets.pop(job, None)
                continue
            former = self.targets.get(job)
            if target.starts or target.drains or former is None or former.reason != target.reason:
                self.decided.append((self.number, record.time_s, target))
            self.targets[job] = target


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A target that is another one today; None: the job has none."""

    number: int
    time_s: float
    job: str
    recorded: JobTarget | None
    decided: JobTarget | None


def fold(records: Iterable[Record]) -> Fleet:
    """What the records say together."""
    fleet = Fleet()
    for record in records:
        fleet.add(record)
    return fleet


def differences(policy: Policy, records: Iterable[Record]) -> Iterator[Difference]:
    """Decides again with this program's rules, from what was recorded, and names the targets that differ."""
    planner, recorded = Planner(policy), dict[str, JobTarget]()
    for number, record in enumerate(records, 1):
        for job, target in record.targets.items():
            if target is None:
                recorded.pop(job, None)
            else:
                recorded[job] = target
        decided = {each.job: each for each in planner.decide(record.changes, record.time_s).jobs}
        for job in sorted(recorded.keys() | decided.keys()):
            if recorded.get(job) != decided.get(job):
                yield Difference(
                    number=number, time_s=record.time_s, job=job, recorded=recorded.get(job), decided=decided.get(job)
                )
