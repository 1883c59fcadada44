"""Each rule of the ring, broken on purpose, is found by a scenario of ``test_rings``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.master import test_rings as scenarios

from elasticdl.master.core import evolve as evolving
from elasticdl.master.core.pods import apply as pods
from elasticdl.master.core.rings import apply, decide
from elasticdl.master.core.state import State
from elasticdl.shared.errors import InvariantError
from elasticdl.shared.messages import events

RING_SCENARIOS: list[Callable[[scenarios.Ring], None]] = [
    scenarios.test_a_worker_is_a_member_once_it_is_near,
    scenarios.test_a_dead_member_ends_the_generation_at_once,
    scenarios.test_the_next_member_leads_after_the_leader_and_its_ledger_decides,
    scenarios.test_a_broken_connection_ends_the_generation_once_every_member_has_said_so,
    scenarios.test_a_member_that_has_no_model_yet_does_not_lead_one_that_has,
    scenarios.test_a_report_about_an_earlier_generation_changes_nothing,
    scenarios.test_a_worker_that_stops_is_no_member_and_its_successor_joins,
    scenarios.test_a_silent_member_is_left_out,
    scenarios.test_events_of_a_former_leader_do_not_count,
    scenarios.test_a_resume_continues_with_higher_numbers_and_no_members,
]


def forms_at_the_first_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection forms a generation before every member has given the former one up."""
    rule = decide._reason

    def reason(state: State, present: Any, joining: Any, lost: Any) -> str:
        left = [one.worker for one in present if one.worker in state.ring.ready]
        return rule(state, present, joining, lost) or (f"{left[0]} gave up" if left else "")

    monkeypatch.setattr(decide, "_reason", reason)


def forms_with_any_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report about an earlier generation counts for the present one."""
    rule = apply.on_ring_member_ready

    def on_ready(state: State, envelope: Any, event: Any) -> None:
        rule(state, envelope, replace(event, left=max(event.left, state.ring.generation)))

    monkeypatch.setitem(evolving.HANDLERS, events.RingMemberReady, on_ready)


def lets_a_member_without_a_model_lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seniority alone decides who leads."""
    monkeypatch.setattr(decide, "_by_state", lambda _state, present: present)


def keeps_a_worker_that_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that has said that it stops stays a member until its process has ended."""

    def is_present(state: State, worker: Any, incarnation: Any) -> bool:
        return state.is_member(worker, incarnation) and not state.pods[worker].is_unresponsive

    monkeypatch.setattr(decide, "is_present", is_present)


def keeps_a_silent_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member without heartbeats stays in the ring."""

    def is_present(state: State, worker: Any, incarnation: Any) -> bool:
        return state.is_member(worker, incarnation) and state.pods[worker].stopped_incarnation != incarnation

    monkeypatch.setattr(decide, "is_present", is_present)


def keeps_ps_0_after_its_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the leader's process leaves the credit of ps-0 as it is."""
    monkeypatch.setattr(pods, "on_worker_process_ended", lambda *_: None)
    monkeypatch.setattr(apply, "_lose_served", lambda *_: None)


def joins_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Joiners interrupt the leader while it makes the model."""
    monkeypatch.setattr(State, "all_ps_have_model", property(lambda _: True))


def joins_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts is a member at once, and the others wait until it has copied the model."""
    rule = decide._joining

    def joining(state: State, present: Any) -> Any:
        names = {one.worker for one in present}
        return [name for name in state.ring.ready if name not in names] if present else rule(state, present)

    monkeypatch.setattr(decide, "_joining", joining)


MUTATIONS = [
    joins_without_a_copy,
    forms_at_the_first_report,
    forms_with_any_report,
    lets_a_member_without_a_model_lead,
    keeps_a_worker_that_stops,
    keeps_a_silent_member,
    keeps_ps_0_after_its_leader,
    joins_without_a_model,
]


@pytest.mark.parametrize("mutate", MUTATIONS)
def test_a_broken_rule_is_found(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert _is_found()


def test_unbroken_rules_pass() -> None:
    assert not _is_found()


def _is_found() -> bool:
    try:
        scenarios.test_others_join_once_the_leader_has_a_model()
        for scenario in RING_SCENARIOS:
            scenario(scenarios.three_workers())
    except (AssertionError, InvariantError, ValueError):
        return True
    return False
