"""Quotas of queues, what they borrow, and how they get it back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.clusters import after, job, nodes, number, orders, service

from elasticdl.controller.core import Budget, Cluster, Job, Queue, Role, decide


def cluster(*cpu: int, **quotas: int) -> Cluster:
    """A cluster with queues of these quotas of CPU."""
    return Cluster(
        nodes=nodes(*cpu), queues=tuple(Queue(name=name, quota={"cpu": each}) for name, each in quotas.items())
    )


def settled(found: Cluster, *jobs: Job) -> Cluster:
    for _ in range(20):
        targets = decide(found, jobs, 0.0)
        if not orders(targets):
            return found
        found = after(found, list(jobs), targets)
    raise AssertionError(f"orders without end: {orders(targets)}")


def a_job(name: str, queue: str, **fields: object) -> Job:
    return job(name, queue=queue, workers=(1, 99), **fields)  # type: ignore[arg-type]


def test_a_job_of_a_queue_that_does_not_exist_says_so() -> None:
    target = decide(cluster(20, a=10), [a_job("one", "b")], 0.0).of("one")
    assert (target.admitted, target.reason) == (False, "waits for its quota: there is no queue b")


def test_a_queue_uses_what_others_leave_and_no_more_than_all_quotas() -> None:
    target = decide(cluster(40, a=10, b=10), [a_job("one", "a")], 0.0).of("one")
    assert target.workers == 9  # With master and ps 20 CPU, in a cluster of 40.
    assert "queue a uses 0.02 of its quota of 0.01 cpu, and other queues leave too little cpu" in target.reason


def test_a_limit_is_the_most_with_what_is_borrowed() -> None:
    found = cluster(40, b=10)
    found = replace(found, queues=(*found.queues, Queue(name="a", quota={"cpu": 10}, limit={"cpu": 14})))
    target = decide(found, [a_job("one", "a")], 0.0).of("one")
    assert target.workers == 6
    assert "of its limit of 0.014 cpu" in target.reason
    lowered = replace(settled(found, a_job("one", "a")), queues=(Queue(name="a", quota={"cpu": 6}, limit={"cpu": 6}),))
    assert decide(lowered, [a_job("one", "a")], 0.0).of("one").workers == 2


def test_what_is_borrowed_goes_back_when_the_other_queue_claims_its_quota() -> None:
    first, second = a_job("one", "a"), a_job("two", "b", created_s=1.0)
    found = settled(cluster(20, a=10, b=10), first)
    assert number(found, "one", Role.WORKER) == 9
    found = settled(found, first, second)
    assert [number(found, name, Role.WORKER) for name in ("one", "two")] == [4, 4]


def test_whole_jobs_that_borrow_leave_for_a_gang_within_its_quota() -> None:
    borrowers = [a_job(f"one-{index}", "a", created_s=float(index)) for index in range(5)]
    found = settled(cluster(20, a=10, b=10), *borrowers)
    claimed = a_job("two", "b", created_s=9.0)
    claimed = replace(claimed, worker=replace(claimed.worker, min=4))
    targets = decide(found, [*borrowers, claimed], 0.0)
    assert targets.of("two").admitted
    assert [targets.of(each.name).admitted for each in borrowers] == [True, True, False, False, False]
    assert targets.of("one-4").reason.startswith("gives all its room to job two")


def test_a_borrowing_job_takes_nothing_from_a_queue_within_its_quota() -> None:
    own = a_job("one", "a")
    found = settled(cluster(20, a=20, b=4), own)
    assert number(found, "one", Role.WORKER) == 9
    high = replace(a_job("two", "b", priority=5), worker=replace(own.worker, min=2))
    target = decide(found, [own, high], 0.0).of("two")
    assert (target.admitted, target.reason.startswith("waits for its quota")) == (False, True)


def test_a_borrowing_job_takes_nothing_from_a_job_that_borrows_only_for_its_spare_ps() -> None:
    own = job("own", queue="a", workers=(2, 2), ps=(0, 1), ps_request={"cpu": 4})
    high = job("high", queue="b", workers=(1, 1), worker={"cpu": 7}, priority=1)
    found = settled(cluster(12, a=6, b=8), own)
    assert number(found, "own", Role.PS) == 1
    found = settled(found, own, high)
    assert [number(found, name, Role.WORKER) for name in ("own", "high")] == [2, 0]


def test_a_queue_returns_no_whole_job_for_what_its_workers_above_the_minimum_borrow() -> None:
    own, claim = job("own", queue="a", workers=(3, 99), priority=1), job("claim", queue="b", workers=(4, 4))
    found = settled(cluster(16, a=10, b=10), own)
    assert number(found, "own", Role.WORKER) == 7
    assert settled(found, own, claim).pods == found.pods


def test_a_borrowing_gang_takes_no_whole_job_that_holds_some_of_its_queues_quota() -> None:
    grows = job("grows", queue="a", workers=(2, 99))
    small = job("small", queue="a", workers=(2, 2), ps=(0, 0), created_s=1.0)
    high = job("high", queue="b", workers=(2, 2), ps=(0, 0), priority=1)
    found = settled(cluster(20, a=9, b=2), grows, small)
    assert [number(found, name, Role.WORKER) for name in ("grows", "small")] == [2, 2]
    assert settled(found, grows, small, high).pods == found.pods


def test_within_a_queue_jobs_share_as_everywhere() -> None:
    first, second = a_job("one", "a"), a_job("two", "a", created_s=1.0)
    found = settled(settled(cluster(40, a=20), first), first, second)
    assert [number(found, name, Role.WORKER) for name in ("one", "two")] == [4, 4]


def test_a_job_that_waits_for_its_quota_stops_only_its_own_queue() -> None:
    wide = replace(a_job("wide", "a"), worker=replace(job().worker, min=20, max=30))
    jobs = [
        wide,
        a_job("small", "a", created_s=1.0),
        a_job("other", "b", created_s=2.0),
        a_job("free", "", created_s=3.0),
    ]
    targets = decide(cluster(60, a=10, b=10), jobs, 0.0)
    assert [target.job for target in targets.jobs if target.admitted] == ["other", "free"]
    assert targets.of("small").reason == "waits behind wide in queue a"


@pytest.mark.parametrize("share", [6, 10, 14])
def test_services_do_not_count(share: int) -> None:
    found = cluster(20, a=share)
    found = replace(found, pods=(service("web", 4, node="n0"),))
    target = decide(found, [a_job("one", "a")], 0.0).of("one")
    assert target.workers == (share - 2) // 2


def test_the_budget_of_a_namespace_is_named_and_shared() -> None:
    budget = Budget(name="ResourceQuota team/compute", namespace="team", most={"cpu": 10})
    limited = replace(cluster(40), budgets=(budget,))
    first = job("one", namespace="team", workers=(1, 99))
    target = decide(limited, [first], 0.0).of("one")
    assert target.workers == 4
    assert "ResourceQuota team/compute leaves 0.01 cpu, of which 0.01 are used" in target.reason
    second = job("two", namespace="team", workers=(1, 99), created_s=1.0)
    other = job("three", namespace="else", workers=(1, 99), created_s=2.0)
    found = settled(settled(limited, first), first, second, other)
    assert [number(found, name, Role.WORKER) for name in ("one", "two", "three")] == [2, 1, 14]
    wide = replace(second, worker=replace(second.worker, min=9))
    targets = decide(settled(limited, first), [first, wide], 0.0)
    assert targets.of("two").reason.startswith("waits for its quota: ResourceQuota team/compute leaves")
    assert not targets.of("one").drains


def test_a_job_without_a_queue_takes_the_room_of_a_borrower_of_lower_priority_only() -> None:
    borrowers = [a_job(f"one-{index}", "a", created_s=float(index)) for index in range(5)]
    found = settled(cluster(20, a=10, b=10), *borrowers)
    wide = replace(job("two", created_s=9.0), worker=replace(job().worker, min=4))
    assert not decide(found, [*borrowers, wide], 0.0).of("two").admitted
    assert decide(found, [*borrowers, replace(wide, priority=1)], 0.0).of("two").admitted
