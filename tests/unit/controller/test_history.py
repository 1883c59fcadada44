"""The log of a fleet: what is written is read again, and recorded decisions are taken again as they were."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from tests.fleet.record import FLEETS, record_seed
from tests.unit.controller.clusters import after, job, nodes, service
from tests.unit.controller.test_properties import clusters as any_cluster
from tests.unit.controller.test_properties import jobs as any_jobs

from elasticdl.controller.core import Budget, Cluster, Curve, Drain, Planner, Policy, Role, Start, View, decide
from elasticdl.controller.history import log_file
from elasticdl.controller.history.log_file import read_log
from elasticdl.controller.history.recording import RecordingPlanner
from elasticdl.controller.history.records import changes_to_json, record_line, record_of
from elasticdl.controller.history.replay import differences, fold
from elasticdl.shared.errors import FormatError, UserError

RECORDED = sorted(FLEETS.glob("*.fleet"))


def fail(problem: str) -> None:
    raise AssertionError(problem)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_fleets_decide_today_as_they_did(path: Path) -> None:
    """If a rule was changed on purpose: ``python -m tests.fleet.record``."""
    policy, records = read_log(path)
    assert not list(differences(policy, records))


def test_there_are_recorded_fleets() -> None:
    assert len(RECORDED) >= 5


@settings(max_examples=50, deadline=None)
@given(any_cluster(), any_jobs(), any_jobs())
def test_a_record_is_read_as_it_was_written(cluster, before, now) -> None:  # type: ignore[no-untyped-def]
    view = View()
    for wanted in (before, now):
        changes = view.changes_to(cluster, wanted)
        targets = {each.job: each for each in decide(cluster, wanted, 0.0).jobs}
        line = record_line(7.5, changes_to_json(changes, view), targets)
        record = record_of(line, view, "a line")
        assert (record.time_s, record.changes, record.targets) == (7.5, changes, targets)
        view.apply(changes)


def test_only_what_has_changed_is_written() -> None:
    view = View()
    wanted = job("a", curve=Curve(((1, 1.0), (4, 3.5))), remaining_s=50.0)
    view.apply(view.changes_to(Cluster(nodes=nodes(8), pods=(service("web", 2, node="n0"),)), [wanted]))
    edited = replace(wanted, remaining_s=40.0, worker=replace(wanted.worker, max=3))
    cluster = Cluster(
        nodes=nodes(8),
        ordered=(Start(pod="a-ps-0", job="a", role=Role.PS, node="n0"), Drain(pod="a-worker-3", job="a")),
        budgets=(Budget(name="q", namespace="", most={"cpu": 4}),),
    )
    changes = view.changes_to(cluster, [edited])
    seen = changes_to_json(changes, view)
    assert seen == {
        "pods": {"web": None},
        "jobs": {"a": {"worker": {"max": 3}, "remaining_s": 40.0}},
        "starts": {"a-ps-0": {"pod": "a-ps-0", "job": "a", "role": "ps", "node": "n0"}},
        "drains": {"a-worker-3": {"pod": "a-worker-3", "job": "a"}},
        "budgets": [{"name": "q", "namespace": "", "most": {"cpu": 4}}],
    }
    assert record_of(record_line(0.0, seen, {}), view, "a line").changes == changes


def test_a_log_that_was_cut_off_and_one_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "logs" / "fleet.log"
    planner = RecordingPlanner(path, fail)
    cluster, wanted = Cluster(nodes=nodes(8, 8)), [job("a"), job("b")]
    for _ in range(3):
        targets = planner.decide(planner.view.changes_to(cluster, wanted), 1.0)
        cluster = after(cluster, wanted, targets)
    _, records = read_log(path)  # Its writer has not closed it.
    known = list(records)
    assert len(known) == 2
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert list(read_log(path)[1]) == known[:1]
    path.write_bytes(whole)
    monkeypatch.setattr(log_file, "FILE_BYTES_MAX", 0)
    for number in (3, 4):
        wanted = [job("a"), job(f"c-{number}")]
        planner.decide(planner.view.changes_to(cluster, wanted), float(number))
    policy, records = read_log(path)  # Each file begins with all that there is.
    known = list(records)
    assert [record.time_s for record in known] == [4.0]
    assert not list(differences(policy, known))
    assert fold(known).targets.keys() == {"a", "c-4"}
    assert path.with_name("fleet.log.1").exists()


def test_a_disk_that_is_full_harms_no_decision(tmp_path: Path) -> None:
    problems: list[str] = []
    (tmp_path / "file").touch()
    planner = RecordingPlanner(tmp_path / "file" / "fleet.log", problems.append)
    cluster = Cluster(nodes=nodes(8))
    for number in range(2):
        wanted = [job(f"a-{number}")]
        changes = planner.view.changes_to(cluster, wanted)
        assert planner.decide(changes, 0.0) == decide(cluster, wanted, 0.0)
    assert len(problems) == 1
    assert "can't be written" in problems[0]


def test_another_rule_is_named(tmp_path: Path) -> None:
    record_seed(3, tmp_path / "log")
    policy, records = read_log(tmp_path / "log")
    found = list(differences(replace(policy, gain_min=0.9), records))
    assert found
    assert all(each.recorded != each.decided for each in found)


def test_what_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(UserError, match="can't be read"):
        read_log(path)
    path.write_bytes(b"text")
    with pytest.raises(UserError, match="no log of a fleet"):
        read_log(path)
    path.write_bytes(gzip.compress(b'{"format":"elasticdl fleet","version":99,"policy":{}}\n'))
    with pytest.raises(FormatError, match="version 99"):
        read_log(path)
    path.write_bytes(gzip.compress(b'{"format":"elasticdl fleet","version":1,"policy":{}}\n{"s":"x"}\n'))
    policy, records = read_log(path)
    assert policy == Policy()
    with pytest.raises(UserError, match="record 1"):
        list(records)


def test_a_planner_begins_again_after_an_error() -> None:
    planner, cluster, wanted = Planner(), Cluster(nodes=nodes(8)), [job("a")]
    planner.decide(planner.view.changes_to(cluster, wanted), 0.0)
    broken = replace(cluster, pods=(replace(service("web", 1), request={"cpu": "a lot"}),))  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        planner.decide(planner.view.changes_to(broken, wanted), 0.0)
    assert planner.decide(planner.view.changes_to(cluster, wanted), 0.0) == decide(cluster, wanted, 0.0)
