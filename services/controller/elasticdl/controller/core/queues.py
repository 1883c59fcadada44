"""Quotas of queues, and what queues borrow from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elasticdl.controller.core.resources import Resources, plus

if TYPE_CHECKING:
    from elasticdl.controller.core.cluster import Role
    from elasticdl.controller.core.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What the jobs of a queue may use together.

    Attributes:
        quota: always theirs, if need be back from queues that have borrowed it. Resources that it does not name are not
            limited.
        limit: most of each resource with what is borrowed; None: all that other queues leave of their quotas.
    """

    name: str
    quota: Resources
    limit: Resources | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What the jobs of a namespace may use together, as Kubernetes enforces it: nothing is borrowed.

    Attributes:
        name: as people know it, for example ``ResourceQuota team/compute``.
        most: what other pods of the namespace leave of it.
    """

    name: str
    namespace: str
    most: Resources


def exceeded(used: Resources, most: Resources) -> str:
    """The first resource of which more is used than the most; empty: none."""
    return next((name for name, amount in sorted(most.items()) if used.get(name, 0) > amount), "")


class Quotas:
    """What the queues use in a plan.

    Args:
        queues: jobs without a queue are not limited.
        budgets: of namespaces, besides.
    """

    def __init__(self, queues: tuple[Queue, ...], budgets: tuple[Budget, ...] = ()) -> None:
        self._budgets: dict[str, list[Budget]] = {}
        for budget in budgets:
            self._budgets.setdefault(budget.namespace, []).append(budget)
        self._used_in: dict[str, dict[str, int]] = {namespace: {} for namespace in self._budgets}
        self.is_limiting = bool(queues or budgets)
        self.queues: Mapping[str, Queue] = {each.name: each for each in queues}
        self.used: dict[str, dict[str, int]] = {each.name: {} for each in queues}
        self.gangs: dict[str, dict[str, int]] = {each.name: {} for each in queues}
        """What is used without workers and ps above the minimum."""
        self._pool: Resources = {}
        for each in queues:
            self._pool = plus(self._pool, each.quota)

    def change(self, job: Job, role: Role, times: int, now: int) -> None:
        """Count pods of a job that come or go; ``now``: how many it has then."""
        request, least = job.group(role).request, job.least(role)
        if job.queue in self.used:
            self.used[job.queue] = plus(self.used[job.queue], request, times)
            in_gang = min(now, least) - min(now - times, least)
            self.gangs[job.queue] = plus(self.gangs[job.queue], request, in_gang)
        if job.namespace in self._used_in:
            self._used_in[job.namespace] = plus(self._used_in[job.namespace], request, times)

    def is_over(self, job: Job, more: Resources | None = None) -> bool:
        """Whether the job's queue uses more than its quota, with more pods."""
        queue = self.queues.get(job.queue)
        return queue is not None and bool(exceeded(plus(self.used[queue.name], more or {}), queue.quota))

    def gangs_are_over(self, queue: str) -> bool:
        """Whether a queue uses more than its quota even without workers and ps above the minimum.

        If these are all that it borrows, whole jobs of it would come back at once for what is their own.
        """
        return bool(exceeded(self.gangs[queue], self.queues[queue].quota))

    def refusal(self, job: Job, more: Resources) -> str:
        """Why the job's queue or namespace can't use more; empty: it can."""
        for budget in self._budgets.get(job.namespace, ()):
            used = self._used_in[job.namespace]
            if name := exceeded(plus(used, more), {each: most for each, most in budget.most.items() if more.get(each)}):
                return (
                    f"{budget.name} leaves {_amount(name, budget.most)} {name}, of which {_amount(name, used)} are used"
                )
        if not job.queue:
            return ""
        queue = self.queues.get(job.queue)
        if queue is None:
            return f"there is no queue {job.queue}"
        used = plus(self.used[queue.name], more)
        if not (name := exceeded(used, queue.quota)):
            return ""
        before = f"queue {queue.name} uses {_amount(name, self.used[queue.name])} of its quota of"
        if queue.limit is not None and (most := exceeded(used, queue.limit)):
            return (
                f"queue {queue.name} uses {_amount(most, self.used[queue.name])} of its limit of "
                f"{_amount(most, queue.limit)} {most}"
            )
        if lacking := self.overdrawn(more):
            return (
                f"{before} {_amount(name, queue.quota)} {name}, and other queues leave too little {lacking} to borrow"
            )
        return ""

    def share_limits(self, job: Job, other: Job) -> bool:
        """Whether what one job returns may be what the other one lacks."""
        is_one_queue = job.queue == other.queue != ""
        return is_one_queue or (job.namespace == other.namespace and job.namespace in self._budgets)

    def overdrawn(self, more: Resources | None = None) -> str:
        """The first resource of which all queues use more than all quotas; empty: none."""
        total = dict(more or {})
        for name, used in self.used.items():
            quota = self.queues[name].quota
            total = plus(total, {each: amount for each, amount in used.items() if each in quota})
        return exceeded(total, self._pool)

    def is_beyond_limit(self, job: Job) -> bool:
        """Whether the job's queue borrows more than its limit, because that was lowered. A quota is always allowed."""
        queue = self.queues.get(job.queue)
        if queue is None or queue.limit is None or not self.is_over(job):
            return False
        return bool(exceeded(self.used[queue.name], queue.limit))


def _amount(name: str, amounts: Resources) -> str:
    return amount_text(name, amounts.get(name, 0))


def amount_text(name: str, amount: int) -> str:
    """An amount of a resource as people write it."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    return f"{amount / 1024:g} GiB" if name == "memory" else str(amount)
