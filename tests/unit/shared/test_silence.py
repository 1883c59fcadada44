"""The watch over heartbeats blames nobody for what the watcher or the broker did."""

from __future__ import annotations

from elasticdl.shared.failure_detection.detector import SilenceWatch
from elasticdl.shared.names import Incarnation, PodName

ME, PS, LIFE = PodName("master"), PodName("ps-0"), Incarnation("a")


def listen(watch: SilenceWatch, start_s: int, end_s: int, *others: PodName) -> list[tuple[PodName, int]]:
    """Second by second: everybody named beats, the watcher too. Returns who was reported, and when."""
    found = []
    for second in range(start_s, end_s):
        watch.hear(ME, LIFE)
        for other in others:
            watch.hear(other, LIFE)
        found += [(silent.pod, second) for silent in watch.tick(float(second))]
    return found


def make() -> SilenceWatch:
    return SilenceWatch(own=ME, limit_s=6.0, interval_s=1.0)


def test_who_stops_beating_is_reported_once() -> None:
    watch = make()
    assert listen(watch, 0, 10, PS) == []
    assert listen(watch, 10, 40) == [(PS, 15)]


def test_a_frozen_watcher_blames_nobody() -> None:
    watch = make()
    listen(watch, 0, 10, PS)
    assert watch.tick(500.0) == []
    assert listen(watch, 500, 520, PS) == []


def test_an_absent_broker_is_nobodys_silence() -> None:
    watch = make()
    listen(watch, 0, 10, PS)
    assert [watch.tick(float(second)) for second in range(10, 60)] == [[]] * 50
    assert watch.deaf_s == 50.0
    assert listen(watch, 60, 80, PS) == []
    assert watch.deaf_s == 0.0


def test_the_ended_are_not_expected() -> None:
    watch = make()
    listen(watch, 0, 10, PS)
    watch.forget(PS)
    assert listen(watch, 10, 40) == []


def test_one_who_was_dead_before_anybody_listened_is_reported() -> None:
    watch = make()
    watch.expect(PS, LIFE)
    assert listen(watch, 0, 40) == [(PS, 7)]


def test_who_is_expected_and_beats_is_not_reported() -> None:
    watch = make()
    watch.expect(PS, LIFE)
    assert listen(watch, 0, 40, PS) == []
