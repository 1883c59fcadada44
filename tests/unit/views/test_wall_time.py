"""Where the wall time went: the causes sum to it, whatever the log is, and name what was done to the recorded jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.cli.job_log import finish, half_done
from tests.unit.views.recorded import LOGS, recorded

from elasticdl.shared.messages.events import HeartbeatsMissed, LogRecord, TaskFinished, TaskTaken
from elasticdl.shared.messages.measurements import BatchSlow
from elasticdl.shared.messages.times import Times
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.views.wall_time.accounts import EVIDENCE_MAX
from elasticdl.views.wall_time.causes import WORDS, Cause
from elasticdl.views.wall_time.fold import wall_time
from elasticdl.views.wall_time.values import WallTime, wall_time_facts

NAMES = [path.stem for path in LOGS]
HISTORIES = {name: recorded(name) for name in NAMES}


def check(found: WallTime, records: Sequence[LogRecord]) -> None:
    """The laws of every result."""
    assert sum(part.seconds for part in found.parts) == pytest.approx(found.wall_s, abs=1e-6)
    assert sum(each.ended_s - each.started_s for each in found.path) == pytest.approx(found.wall_s, abs=1e-6)
    seqs = {record.seq for record in records}
    for part in found.parts:
        assert part.seconds > 0.0
        assert len(part.evidence) <= EVIDENCE_MAX
        assert {seq for seq, _ in part.evidence} <= seqs
    for before, after in zip(found.path, found.path[1:], strict=False):
        assert before.ended_s == pytest.approx(after.started_s, abs=1e-6)


def seconds(found: WallTime) -> dict[Cause, float]:
    return {part.cause: part.seconds for part in found.parts}


def evidence(found: WallTime, cause: Cause) -> list[int]:
    return [seq for part in found.parts if part.cause is cause for seq, _ in part.evidence]


def at(records: Sequence[LogRecord], seq: int, time_s: float) -> LogRecord:
    record = records[seq - 1]
    return replace(record, envelope=replace(record.envelope, time_s=time_s))


@pytest.mark.parametrize("name", NAMES)
def test_a_log_cut_at_any_event_has_a_result(name: str) -> None:
    records = HISTORIES[name]
    for length in range(len(records) + 1):
        check(wall_time(records[:length]), records)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_wrong_clocks_repetitions_and_gaps_change_no_law(data: st.DataObject) -> None:
    records = list(HISTORIES[data.draw(st.sampled_from(NAMES))])
    for _ in range(data.draw(st.integers(0, 5))):
        seq = data.draw(st.integers(1, len(records)))
        shift_s = data.draw(st.floats(-1e5, 1e5))
        records[seq - 1] = at(records, seq, records[seq - 1].envelope.time_s + shift_s)
    kept = data.draw(st.lists(st.sampled_from(records), min_size=1, max_size=200))
    for each in (records, sorted(kept, key=lambda record: record.seq), kept):
        check(wall_time(each), each)


def test_a_killed_ps_costs_the_batches_that_it_had_absorbed() -> None:
    found = wall_time(HISTORIES["ps-killed"])
    assert seconds(found)[Cause.RECOMPUTED] > 5.0
    assert evidence(found, Cause.RECOMPUTED) == [44], "the decision to dispatch them again"
    assert evidence(found, Cause.LOST_PS) == [39], "its exit"
    assert Cause.LOST_WORKER not in seconds(found)


def test_a_killed_worker_costs_the_start_of_the_next_one() -> None:
    found = wall_time(HISTORIES["worker-killed"])
    assert 0.5 < seconds(found)[Cause.LOST_WORKER] < 1.5
    assert evidence(found, Cause.LOST_WORKER) == [35], "its exit"
    assert Cause.RECOMPUTED not in seconds(found)


def test_a_resumed_job_was_paused() -> None:
    found = wall_time(HISTORIES["resumed"])
    assert 4.0 < seconds(found)[Cause.PAUSED] < 5.0
    assert seconds(found)[Cause.PENDING] > 3.0
    assert [each.phase.value for each in found.path].count("training") == 2


def test_the_time_before_the_log_is_that_of_the_command() -> None:
    found = wall_time(HISTORIES["plain"])
    assert seconds(found)[Cause.PREPARING] == pytest.approx(42.1, abs=0.1)
    assert found.path[0].phase.value == "preparing"


def test_a_batch_that_hangs_is_a_stall() -> None:
    records = list(HISTORIES["plain"])
    finished = next(each for each in records if isinstance(each.envelope.event, TaskFinished))
    place, event = finished.seq - 1, finished.envelope.event
    assert isinstance(event, TaskFinished)
    slow = replace(finished.envelope, event=BatchSlow(task=event.task, batch=1, work="training", seconds=30.0))
    later = [
        replace(each, envelope=replace(each.envelope, time_s=each.envelope.time_s + 50.0)) for each in records[place:]
    ]
    shifted = [
        *records[:place],
        replace(finished, envelope=replace(slow, time_s=finished.envelope.time_s + 30.0)),
        *later,
    ]
    found = wall_time(shifted)
    check(found, shifted)
    assert seconds(found)[Cause.STALLED] > 20.0
    assert evidence(found, Cause.STALLED) == [finished.seq]
    missed = HeartbeatsMissed(pod=finished.envelope.name, incarnation=Incarnation("x"), silent_s=30.0)
    silent = replace(finished, envelope=replace(slow, time_s=finished.envelope.time_s + 30.0, event=missed))
    assert seconds(wall_time([*records[:place], silent, *later]))[Cause.STALLED] > 20.0


def two_paces(slow: float) -> list[LogRecord]:
    """Two workers that compute tasks of 16 batches; a batch takes 0.25 s, or ``slow`` times that on the second one."""
    start = next(record for record in HISTORIES["plain"] if isinstance(record.envelope.event, TaskTaken))
    records = list(HISTORIES["plain"][: start.seq - 1])
    taken, template = (
        start.envelope.event,
        next(record for record in HISTORIES["plain"] if isinstance(record.envelope.event, TaskFinished)),
    )
    assert isinstance(taken, TaskTaken) and isinstance(template.envelope.event, TaskFinished)
    times = sorted(
        (4.0 * pace * round_, PodName(name), 4.0 * pace, 2 * round_ + offset)
        for name, pace, offset in (("worker-0", 1.0, 0), ("worker-1", slow, 1))
        for round_ in range(1, 5)
    )
    begun_s = start.envelope.time_s
    for name, offset in (("worker-0", 0), ("worker-1", 1)):
        event = replace(taken, task=replace(taken.task, number=2 + offset))
        envelope = replace(start.envelope, name=PodName(name), event=event)
        records.append(LogRecord(seq=len(records) + 1, envelope=envelope))
    for end_s, name, spent_s, number in times:
        finished = replace(
            template.envelope.event,
            task=replace(taken.task, number=number),
            batches=16,
            times=Times.of({"compute": spent_s}),
        )
        following = replace(taken, task=replace(taken.task, number=number + 2))
        for each in (finished, following):
            envelope = replace(template.envelope, name=name, time_s=begun_s + end_s, event=each)
            records.append(LogRecord(seq=len(records) + 1, envelope=envelope))
    return records


def test_a_slow_worker_is_named() -> None:
    records = two_paces(4.0)
    found = wall_time(records)
    check(found, records)
    assert seconds(found)[Cause.SLOW_WORKER] > 20.0
    (seq,) = evidence(found, Cause.SLOW_WORKER)
    assert records[seq - 1].envelope.name == "worker-1"
    assert Cause.SLOW_WORKER not in seconds(wall_time(two_paces(1.2)))


def test_a_job_of_tests_has_a_result() -> None:
    log = half_done()
    finish(log)
    check(wall_time(log.records), log.records)
    facts = wall_time_facts(wall_time(log.records))
    assert sum(part["seconds"] for part in facts["parts"]) == pytest.approx(facts["wall_s"], abs=1e-4)
    assert json.loads(json.dumps(facts)) == facts


def test_every_cause_has_words() -> None:
    assert set(WORDS) == set(Cause)
