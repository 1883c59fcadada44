"""A replay with checkpoints gives at every point what a fold from the beginning gives."""

from __future__ import annotations

import random
from functools import partial
from itertools import pairwise

import pytest
from tests.unit.views.recorded import LOGS, recorded

from elasticdl.master.core.fold import fold
from elasticdl.views.curves import points
from elasticdl.views.replaying import Replay
from elasticdl.views.replays.checkpoints import BYTES_PER_RECORD, Checkpoint, Checkpoints, Copy
from elasticdl.views.wall_time.fold import wall_time

NAMES = [path.stem for path in LOGS]


@pytest.mark.parametrize("name", NAMES)
def test_states_and_times_at_all_points_are_those_of_a_fold(name: str) -> None:
    records = recorded(name)
    replay = Replay(interval=10)
    for start in range(0, len(records), 7):
        replay.extend(records[start : start + 7])
    for seq in [*range(0, len(records) + 1, 3), len(records), 2, 41]:
        assert replay.state_at(seq) == fold(records[:seq]), seq
        assert replay.wall_time_at(seq) == wall_time(records[:seq]), seq
    assert [each.point for each in replay.curve_points] == list(points(records))
    numbers = [each.seq for each in replay.curve_points]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("interval", [20, 1 << 30])
@pytest.mark.parametrize("name", NAMES)
def test_the_last_state_of_a_log_that_grows_is_that_of_a_fold(name: str, interval: int) -> None:
    records = recorded(name)
    replay = Replay(interval=interval)
    for start in range(0, len(records), 7):
        replay.extend(records[start : start + 7])
        assert replay.state_at(len(replay.records)) == fold(replay.records)
        assert replay.wall_time_at(len(replay.records)) == wall_time(replay.records)


@pytest.mark.parametrize("name", NAMES)
def test_curves_of_a_log_without_its_end(name: str) -> None:
    records = recorded(name)
    for end in range(0, len(records), 13):
        replay = Replay()
        replay.extend(records[:end])
        replay.finish()
        assert [each.point for each in replay.curve_points] == list(points(records[:end]))


def test_checkpoints_are_dropped_when_they_have_too_many_bytes() -> None:
    copy = Copy.of({"text": "x" * 1000})
    kept = Checkpoints(10, bytes_max=20 * len(copy.data))
    for seq in range(1, 1001):
        kept.offer(seq, partial(Checkpoint, seq=seq, state_seq=seq, state=copy, wall_time=copy))
    found = [before.seq for seq in range(1001) if (before := kept.before(seq))]
    assert 5 <= len(set(found)) <= 10 and found[-1] > 800
    assert kept.before(9) is None


def test_large_checkpoints_are_made_less_often() -> None:
    copy = Copy.of(random.Random(1).randbytes(2000))
    kept = Checkpoints(10)
    for seq in range(1, 1001):
        kept.offer(seq, partial(Checkpoint, seq=seq, state_seq=seq, state=copy, wall_time=copy))
    found = sorted({before.seq for seq in range(1001) if (before := kept.before(seq))})
    every = 2 * len(copy.data) // BYTES_PER_RECORD
    assert every > 20
    assert found == [10, *range(10 + every, 1001, every)]


def test_a_copy_is_apart_from_its_original_but_for_the_spec() -> None:
    state = fold(recorded("evaluation"))
    copy = Copy.of(state).value()
    assert copy == state and copy.spec is state.spec and copy.training.plan is state.plan
    copy.pods.clear()
    assert state.pods


def test_the_timeline_tells_when_processes_lived() -> None:
    replay = Replay()
    replay.extend(recorded("worker-killed"))
    spans = [span for span in replay.processes.spans if span.process == "worker-0"]
    kinds = [span.kind for span in spans if span.kind != "work"]
    assert kinds == ["starting", "running", "away", "starting", "running", "ended"]
    assert all(span.end_s >= span.start_s for span in spans)
    work = [span for span in spans if span.kind == "work"]
    assert work and all(before.end_s <= after.start_s for before, after in pairwise(work))
