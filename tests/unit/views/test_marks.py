"""What a timeline shows besides processes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.master.test_rings import three_workers
from tests.unit.views.recorded import recorded

from elasticdl.dashboard import panels
from elasticdl.master.core.fold import fold
from elasticdl.shared.messages.events import ExitCause, LogRecord
from elasticdl.views.replaying import Replay
from elasticdl.views.replays.marks import Marks


def marks_of(records: Sequence[LogRecord]) -> Marks:
    marks = Marks()
    for record in records:
        marks.take(record)
    return marks


def test_the_placement_is_the_folded_one_at_every_change() -> None:
    for name in ("scaled", "ps-killed", "resumed"):
        records = recorded(name)
        found = marks_of(records).placements
        assert len(found) == (2 if name == "scaled" else 1)
        for each in found:
            assert fold(records[: each.seq]).placement == each.placement


def test_generations_of_a_ring_have_their_members_and_reasons() -> None:
    ring = three_workers()
    ring.exit_pod("worker-0", ExitCause.PREEMPTED)
    marks = marks_of(ring.log)
    last = marks.generations[-1]
    assert (last.number, last.members, last.reason) == (4, ("worker-1", "worker-2"), "worker-0 left")
    assert marks_of([*ring.log, *ring.log]).generations == marks.generations, "a repeated decision is none"
    assert marks.placements == [], "a ring has no ps whose parts could move"


def test_a_timeline_has_evaluations_and_snapshots() -> None:
    replay = Replay()
    replay.extend(recorded("evaluation"))
    found = panels.timeline(replay)
    kinds = [mark[0] for mark in found["marks"]]
    assert kinds.count("snapshot") == found["snapshots"] > 0
    (first, *_) = (mark for mark in found["marks"] if mark[0] == "evaluation")
    assert "loss" in first[4] and first[4].startswith("step ")
