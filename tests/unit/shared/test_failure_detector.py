"""The failure detector suspects no process because of a frozen observer or an unreachable NATS server."""

from __future__ import annotations

from elasticdl.shared.failure_detection.detector import FailureDetector
from elasticdl.shared.names import Incarnation, PodName

OBSERVER, PS, INSTANCE = PodName("master"), PodName("ps-0"), Incarnation("a")


def observe(detector: FailureDetector, start_s: int, end_s: int, *others: PodName) -> list[tuple[PodName, int]]:
    """Second by second: these processes and the observer send heartbeats. Returns who was reported, and when."""
    found = []
    for second in range(start_s, end_s):
        detector.on_heartbeat(OBSERVER, INSTANCE)
        for other in others:
            detector.on_heartbeat(other, INSTANCE)
        found += [(missed.pod, second) for missed in detector.tick(float(second))]
    return found


def make() -> FailureDetector:
    return FailureDetector(own=OBSERVER, timeout_s=6.0, interval_s=1.0, unannounced=(PS,))


def test_a_process_without_heartbeats_is_reported_once() -> None:
    detector = make()
    assert observe(detector, 0, 10, PS) == []
    assert observe(detector, 10, 40) == [(PS, 15)]


def test_a_frozen_observer_reports_no_process() -> None:
    detector = make()
    observe(detector, 0, 10, PS)
    assert detector.tick(500.0) == []
    assert observe(detector, 500, 520, PS) == []


def test_an_unreachable_broker_is_reported_and_no_process() -> None:
    detector = make()
    observe(detector, 0, 10, PS)
    missed, timeouts = [], []
    for second in range(10, 30):
        missed += detector.tick(float(second))
        if detector.broker_timed_out():
            timeouts.append(second)
    assert missed == []
    assert timeouts == [16, 23]
    assert observe(detector, 30, 50, PS) == []
    assert not detector.broker_timed_out()


def test_a_process_that_has_ended_is_not_expected() -> None:
    detector = make()
    observe(detector, 0, 10, PS)
    detector.forget(PS)
    assert observe(detector, 10, 40) == []


def test_an_expected_process_that_never_sent_a_heartbeat_is_reported() -> None:
    detector = make()
    detector.expect(PS, INSTANCE)
    assert observe(detector, 0, 40) == [(PS, 7)]


def test_an_expected_process_that_sends_heartbeats_is_not_reported() -> None:
    detector = make()
    detector.expect(PS, INSTANCE)
    assert observe(detector, 0, 40, PS) == []


def test_heartbeats_under_names_that_nothing_expects_are_ignored() -> None:
    detector = make()
    names = [PodName(f"invented-{number}") for number in range(3)]
    assert observe(detector, 0, 10, *names) == []
    assert observe(detector, 10, 40) == []
