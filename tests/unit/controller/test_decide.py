"""What the scheduling core decides, by aim."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.controller.clusters import after, job, nodes, number, orders, service

from elasticdl.controller.core import Cluster, Curve, Drain, Job, Phase, Pod, Policy, Role, decide


def settled(cluster: Cluster, *jobs: Job, rounds: int = 10) -> Cluster:
    """The cluster when nothing is left to order."""
    for _ in range(rounds):
        targets = decide(cluster, jobs, 0.0)
        if not orders(targets):
            return cluster
        cluster = after(cluster, list(jobs), targets)
    raise AssertionError(f"still ordering after {rounds} rounds: {orders(targets)}")


def test_a_job_alone_gets_all_that_it_can_use() -> None:
    target = decide(Cluster(nodes=nodes(8, 8)), [job()], 0.0).of("a")
    assert (target.admitted, target.workers, target.ps) == (True, 7, 1)
    assert {start.role for start in target.starts} == set(Role)


def test_a_gang_starts_as_a_whole_or_not_at_all() -> None:
    wide = job(workers=(4, 4))
    assert decide(Cluster(nodes=nodes(10)), [wide], 0.0).of("a").workers == 4
    target = decide(Cluster(nodes=nodes(5, 4, 3, 1)), [replace(wide, worker=job(worker={"cpu": 3}).worker)], 0.0).of(
        "a"
    )
    assert target.workers == 3
    busy = Cluster(nodes=nodes(10), pods=(service("web", 1, node="n0"),))
    target = decide(busy, [wide], 0.0).of("a")
    assert (target.admitted, target.starts) == (False, ())
    assert target.reason == "waits for room: 1 master, 1 ps and 4 workers at once"


def test_what_could_never_run_is_named_and_blocks_no_other_job() -> None:
    jobs = [job("large", worker={"cpu": 20}), job("many", workers=(9, 9)), job("small", created_s=1.0)]
    targets = decide(Cluster(nodes=nodes(8)), jobs, 0.0)
    assert targets.of("large").reason.startswith("no node is large enough for a worker")
    assert targets.of("many").reason.startswith("the cluster is too small")
    assert targets.of("small").admitted


def test_no_job_passes_one_that_waits() -> None:
    cluster = Cluster(nodes=nodes(10), pods=(service("web", 4, node="n0"),))
    jobs = [job("first", workers=(4, 4)), job("second", created_s=1.0)]
    targets = decide(cluster, jobs, 0.0)
    assert targets.of("second").reason == "waits behind first"


def test_a_new_job_gets_its_gang_from_the_surplus_of_others_and_then_its_share() -> None:
    cluster = settled(Cluster(nodes=nodes(10, 10)), job("a"))
    assert number(cluster, "a", Role.WORKER) == 9
    targets = decide(cluster, [job("a"), job("b", created_s=1.0)], 0.0)
    assert targets.of("a").drains
    assert (targets.of("a").workers, targets.of("b").workers) == (4, 4)


def test_weights_divide_the_spare_room() -> None:
    targets = decide(
        Cluster(nodes=nodes(16, 16)), [job("a", workers=(1, 99)), job("b", workers=(1, 99), weight=3)], 0.0
    )
    taken = {name: 2 + 2 * targets.of(name).workers for name in "ab"}  # CPU, with master and ps.
    assert taken == {"a": 8, "b": 24}


def test_the_dominant_resource_is_shared() -> None:
    gpu = job("gpu", worker={"cpu": 1, "gpu": 1}, workers=(1, 99))
    cpu = job("cpu", worker={"cpu": 4}, workers=(1, 99))
    targets = decide(Cluster(nodes=nodes(40, gpu=10)), [gpu, cpu], 0.0)
    assert targets.of("gpu").workers == 8  # 8 of 10 GPUs
    assert targets.of("cpu").workers == 7  # 30 of 40 CPU, with master and ps


def test_a_worker_that_adds_nothing_is_not_given() -> None:
    flat = job(curve=Curve(((1, 100.0), (4, 400.0), (5, 405.0))))
    target = decide(Cluster(nodes=nodes(40)), [flat], 0.0).of("a")
    assert target.workers == 4
    assert "would not win back its cost" in target.reason


def test_a_change_must_win_back_its_pause() -> None:
    cluster = Cluster(nodes=nodes(40))
    assert decide(cluster, [job(pause_s=10.0)], 0.0).of("a").workers == 6
    assert decide(cluster, [job(remaining_s=3.0)], 0.0).of("a").workers == 1


@pytest.mark.parametrize(("load", "ps"), [(0.95, 4), (0.85, 3), (0.3, 2)])
def test_ps_follow_their_measured_load(load: float, ps: int) -> None:
    wide = job(ps=(1, 8), workers=(1, 6))
    cluster = settled(Cluster(nodes=nodes(40)), job(ps=(3, 3), workers=(1, 6)))
    target = decide(cluster, [replace(wide, ps_load=load, ps_load_workers=6)], 0.0).of("a")
    assert target.ps == ps


def test_two_workers_leave_for_three_ps() -> None:
    full = job("a", worker={"cpu": 5}, workers=(1, 99))
    cluster = settled(Cluster(nodes=nodes(17, 17, 17, 17)), full)
    new = job("b", worker={"cpu": 5}, ps_request={"cpu": 4}, ps=(3, 3), workers=(1, 1), created_s=1.0)
    targets = decide(cluster, [full, new], 0.0)
    ps = [start.node for start in targets.of("b").starts if start.role is Role.PS]
    assert len(ps) == 3
    assert len(set(ps)) == 1
    assert len(targets.of("a").drains) == 3  # Two for the ps, one for the worker.


def test_ps_move_where_they_cost_no_worker() -> None:
    wide = job(worker={"cpu": 5}, ps_request={"cpu": 4}, workers=(1, 99))
    pods = (
        Pod(name="a-master-0", request={"cpu": 1}, node="n1", job="a", role=Role.MASTER),
        Pod(name="a-ps-0", request={"cpu": 4}, node="n0", job="a", role=Role.PS),
        Pod(name="a-worker-0", request={"cpu": 5}, node="n1", job="a", role=Role.WORKER),
    )
    target = decide(Cluster(nodes=nodes(5, 10), pods=pods), [wide], 0.0).of("a")
    assert target.drains == ("a-ps-0",)
    assert {(start.role, start.node) for start in target.starts} == {(Role.PS, "n1"), (Role.WORKER, "n0")}


def test_pending_services_come_first_and_the_plan_keeps_their_room() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    waiting = replace(cluster, pods=(*cluster.pods, service("web-0", 4)))
    target = decide(waiting, [job()], 0.0).of("a")
    assert (len(target.drains), target.workers, target.starts) == (2, 2, ())


def test_a_job_gives_everything_to_a_service_if_it_must() -> None:
    cluster = settled(Cluster(nodes=nodes(6)), job())
    target = decide(replace(cluster, pods=(*cluster.pods, service("web-0", 4))), [job()], 0.0).of("a")
    assert (target.admitted, target.workers) == (False, 0)
    assert target.reason == "gives all its room to web-0 (priority 1000)"


def test_pods_of_lower_priority_take_nothing() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    pods = (*cluster.pods, service("batch", 4, priority=-1))
    assert not orders(decide(replace(cluster, pods=pods), [job()], 0.0))


def test_a_job_of_higher_priority_takes_the_gang_of_a_lower_one() -> None:
    cluster = settled(Cluster(nodes=nodes(4)), job("low"))
    targets = decide(cluster, [job("low"), job("high", priority=10, created_s=1.0)], 0.0)
    assert targets.of("high").admitted
    assert targets.of("low").reason == "gives all its room to job high (priority 10)"
    equal = decide(cluster, [job("low"), job("high", created_s=1.0)], 0.0)
    assert not equal.of("high").admitted


# What users of other controllers complain about.


def test_pods_that_are_ordered_and_not_seen_yet_are_not_ordered_again() -> None:
    cluster = Cluster(nodes=nodes(10, 10))
    first = decide(cluster, [job()], 0.0)
    expected = replace(cluster, ordered=first.of("a").starts)
    again = decide(expected, [job()], 0.0).of("a")
    assert (again.starts, again.workers) == ((), first.of("a").workers)


def test_pods_that_are_ordered_to_leave_and_still_seen_do_not_cost_another_one() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    waiting = replace(cluster, pods=(*cluster.pods, service("web-0", 4)))
    drains = decide(waiting, [job()], 0.0).of("a").drains
    ordered = tuple(Drain(pod=pod, job="a") for pod in drains)
    assert not orders(decide(replace(waiting, ordered=ordered), [job()], 0.0))


def test_a_refused_order_is_not_repeated_at_once() -> None:
    refused = job(refused_s=100.0)
    assert not orders(decide(Cluster(nodes=nodes(10)), [refused], 110.0))
    assert orders(decide(Cluster(nodes=nodes(10)), [refused], 100.0 + Policy().refusal_pause_s))


def test_two_jobs_never_evict_each_other_in_turns() -> None:
    jobs = [job("a", workers=(1, 99)), job("b", workers=(1, 99), worker={"cpu": 3}, created_s=1.0)]
    cluster = settled(Cluster(nodes=nodes(11, 7, 5)), *jobs)
    assert not orders(decide(cluster, jobs, 100.0))


def test_jobs_of_the_same_second_have_an_order_that_does_not_depend_on_the_list() -> None:
    jobs = [job("b", workers=(3, 3)), job("a", workers=(3, 3))]
    cluster = Cluster(nodes=nodes(9))
    for each in (jobs, jobs[::-1]):
        assert [target.job for target in decide(cluster, each, 0.0).jobs if target.admitted] == ["a"]


def test_a_pod_that_cannot_start_returns_its_room() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    pods = tuple(replace(pod, phase=Phase.STUCK) if pod.name == "a-worker-2" else pod for pod in cluster.pods)
    target = decide(replace(cluster, pods=pods), [job()], 0.0).of("a")
    assert (target.drains, target.starts) == (("a-worker-2",), ())
    assert target.reason == "a-worker-2 can't start and returns its room"


def test_a_job_that_cannot_start_returns_everything() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    pods = tuple(replace(pod, phase=Phase.STUCK) if pod.role is Role.PS else pod for pod in cluster.pods)
    target = decide(replace(cluster, pods=pods), [job()], 0.0).of("a")
    assert not target.admitted
    assert set(target.drains) == {pod.name for pod in cluster.pods}


def test_a_finished_job_returns_its_gpu() -> None:
    gpu = job(worker={"cpu": 1, "gpu": 1})
    cluster = settled(Cluster(nodes=nodes(10, gpu=2)), gpu)
    targets = decide(cluster, [replace(gpu, finished=True), replace(gpu, name="b", created_s=1.0)], 0.0)
    assert len(targets.of("a").drains) == len(cluster.pods)
    assert targets.of("a").reason == "finished; 4 pods still hold room"
    assert targets.of("b").workers == 2


def test_a_job_that_its_owner_suspends_returns_everything() -> None:
    cluster = settled(Cluster(nodes=nodes(10)), job())
    target = decide(cluster, [job(suspended=True)], 0.0).of("a")
    assert len(target.drains) == len(cluster.pods)


def test_pods_on_a_node_that_vanished_are_replaced() -> None:
    cluster = settled(Cluster(nodes=nodes(10, 10)), job())
    target = decide(replace(cluster, nodes=cluster.nodes[1:]), [job()], 0.0).of("a")
    assert (target.admitted, target.workers, target.ps) == (True, 4, 1)


def test_what_is_left_of_a_gang_holds_no_room() -> None:
    wide = job(workers=(4, 4))
    cluster = settled(Cluster(nodes=nodes(5, 5)), wide)
    target = decide(replace(cluster, nodes=cluster.nodes[1:]), [wide], 0.0).of("a")
    assert (target.admitted, target.workers) == (False, 0)
    assert {pod.name for pod in cluster.pods if pod.node == "n1"} == set(target.drains)


def test_a_pod_whose_room_was_taken_goes_elsewhere() -> None:
    first = decide(Cluster(nodes=nodes(4, 4)), [job(workers=(1, 1))], 0.0).of("a")
    pods = tuple(
        Pod(
            name=each.pod,
            request={"cpu": 2 if each.role is Role.WORKER else 1},
            node="n0",
            phase=Phase.PENDING if each.role is Role.WORKER else Phase.RUNNING,
            job="a",
            role=each.role,
        )
        for each in first.starts
    )
    taken = Cluster(nodes=nodes(4, 4), pods=(*pods, service("web", 2, node="n0")))
    target = decide(taken, [job(workers=(1, 1))], 0.0).of("a")
    assert target.drains == ("a-worker-0",)
    assert [start.node for start in target.starts] == ["n1"]


def test_a_ps_gets_no_room_that_another_ps_still_holds() -> None:
    """Each could wait for the other to leave: a ps leaves only when those that replace it have started."""
    cluster = settled(Cluster(nodes=nodes(4)), job(workers=(1, 1)))
    pods = tuple(replace(pod, phase=Phase.LEAVING) if pod.role is Role.PS else pod for pod in cluster.pods)
    assert not decide(Cluster(nodes=nodes(4), pods=pods), [job(workers=(1, 1))], 0.0).of("a").starts


def test_a_gang_takes_the_room_of_a_whole_job_with_its_ps() -> None:
    low, high = job("a", workers=(1, 1)), job("b", workers=(1, 1), priority=1)
    targets = decide(settled(Cluster(nodes=nodes(4)), low), [low, high], 0.0)
    assert len(targets.of("a").drains) == len(targets.of("b").starts) == 3


def test_a_job_whose_master_has_crashed_keeps_its_place() -> None:
    jobs = [job("a", workers=(3, 3)), job("b", workers=(3, 3), created_s=1.0)]
    cluster = settled(Cluster(nodes=nodes(8)), jobs[1])
    crashed = replace(cluster, pods=tuple(pod for pod in cluster.pods if pod.role is not Role.MASTER))
    targets = decide(crashed, jobs, 0.0)
    assert [start.role for start in targets.of("b").starts] == [Role.MASTER]
    assert not targets.of("a").admitted


def test_workers_above_a_maximum_that_was_lowered_leave() -> None:
    cluster = settled(Cluster(nodes=nodes(20)), job(ps=(3, 3), workers=(1, 6)))
    target = decide(cluster, [job(ps=(1, 2), workers=(1, 4))], 0.0).of("a")
    assert (target.workers, target.ps) == (4, 2)
    assert target.drains == ("a-worker-5", "a-worker-4", "a-ps-2")


def test_a_ps_is_not_started_in_place_of_workers_that_alone_keep_it_busy() -> None:
    """One ps is worth four workers here: with two of them the job would have too few workers for two."""
    small = job(worker={"cpu": 1}, ps_request={"cpu": 4}, ps=(1, 4), workers=(1, 99))
    cluster = settled(Cluster(nodes=nodes(14)), replace(small, ps=replace(small.ps, max=1)))
    assert number(cluster, "a", Role.WORKER) == 9
    assert not orders(decide(cluster, [replace(small, ps_load=1.0, ps_load_workers=9, ps_load_ps=1)], 0.0))
