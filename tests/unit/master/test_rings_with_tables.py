"""Jobs with AllreduceStrategy whose tables are on ps: the replica and each ps own a ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.master.driver import PS, plan, whole
from tests.unit.master.test_rings import RING, Ring

from elasticdl.master.core.closing.audit import audit
from elasticdl.master.core.invariants import check
from elasticdl.shared.job.ledger import LedgerRecord
from elasticdl.shared.messages import events
from elasticdl.shared.messages.commands import StartPod, StopPod
from elasticdl.shared.messages.events import ExitCause, GroupLedger
from elasticdl.shared.model.placement import ALL, Placement, Ranges, group_id
from elasticdl.shared.names import PodName, Service

TABLES = (PodName("ps-1"), PodName("ps-2"))
SPEC = replace(RING, ps=3)


@pytest.fixture
def ring() -> Ring:
    """A ring of two workers beside two ps."""
    driver = Ring(SPEC)
    for ps in TABLES:
        driver.start_pod(ps, initialised=True)
    driver.start("worker-1")
    driver.serve()
    driver.start("worker-0")
    driver.serve()
    for worker in ("worker-0", "worker-1"):
        driver.feed(events.WorkerStarted(), Service.WORKER, worker, driver.incarnation(worker))
    assert driver.members == ["worker-1", "worker-0"]
    return driver


def credits_of(ring: Ring) -> dict[str, str]:
    return {str(ps): str(ring.state.pods[ps].incarnation) for ps in ring.state.holders}


def test_the_ps_have_the_partitions_of_the_tables_and_the_replica_those_of_the_dense_variables() -> None:
    driver = Ring(SPEC)
    assert {command.pod for command in driver.take(StartPod)} == {*TABLES, "worker-0", "worker-1", "worker-2"}
    assert driver.state.holders == (PS, *TABLES)
    assert driver.state.owned(PS) == ALL
    assert [driver.state.owned(ps) for ps in TABLES] == [((0, 128),), ((128, 256),)]


def test_other_jobs_have_their_placement() -> None:
    assert Placement.first_of(RING) == Placement.even(1)
    assert Placement.first_of(SPEC).holders == (1, 2)
    assert Placement.first_of(SPEC).of_replica == Placement.even(1)


def test_a_task_is_complete_once_the_replica_and_every_ps_are_credited(ring: Ring) -> None:
    training = ring.state.training
    assert training is not None
    ring.finish(0, credits=credits_of(ring))
    assert 0 in training.complete
    ring.finish(1, credits=credits_of(ring) | {"ps-2": "another"})
    assert 1 not in training.complete
    check(ring.state)


def test_what_a_restored_ps_lacks_is_dispatched_again_and_the_replica_keeps_its_credit(ring: Ring) -> None:
    training = ring.state.training
    assert training is not None
    ring.finish(0, credits=credits_of(ring))
    ring.exit_pod("ps-2", ExitCause.PREEMPTED)
    ring.take(StartPod)
    ring.start_pod("ps-2", initialised=True)
    assert 0 not in training.complete
    assert 0 in training.credited_to(PS)
    assert 0 in ring.dispatched()
    ring.finish(0, credits=credits_of(ring))
    assert 0 in training.complete
    check(ring.state)


def test_the_death_of_the_leader_leaves_the_credit_of_the_ps(ring: Ring) -> None:
    training = ring.state.training
    assert training is not None
    ring.finish(0, credits=credits_of(ring))
    ring.exit_pod("worker-1", ExitCause.PREEMPTED)
    assert ring.members == ["worker-0"]
    ring.serve()
    assert 0 not in training.complete
    assert all(0 in training.credited_to(ps) for ps in TABLES)
    assert not [one for one in ring.take(StopPod) if one.pod in TABLES]
    check(ring.state)


def group(partitions: Ranges, ledger: LedgerRecord) -> tuple[GroupLedger, ...]:
    return (GroupLedger(group=group_id(partitions), partitions=partitions, ledger=ledger),)


def test_the_audit_looks_at_both_parts_of_the_model() -> None:
    ledger = whole(plan())

    def problems(**held: tuple[GroupLedger, ...]) -> tuple[str, ...]:
        ledgers = {PodName(ps.replace("_", "-")): groups for ps, groups in held.items()}
        return audit(plan(), ledger.checksum, ledgers, apart=PS).problems

    replica, first, second = group(ALL, ledger), group(((0, 128),), ledger), group(((128, 256),), ledger)
    assert problems(ps_0=replica, ps_1=first, ps_2=second) == ()
    assert "in no final snapshot" in " ".join(problems(ps_0=replica, ps_1=first))
    assert "in no final snapshot" in " ".join(problems(ps_1=first, ps_2=second))
    assert "in several groups" in " ".join(problems(ps_0=replica, ps_1=first, ps_2=replica))
    doubled = group(((128, 256),), replace(ledger, step=ledger.step + 1))
    assert "batches" in " ".join(problems(ps_0=replica, ps_1=first, ps_2=doubled))
