"""What may overlap, as a table: a window of phases, and the operation that starts next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.ps.example import spec

from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.names import Purpose
from elasticdl.worker.core import BatchRef, PipelineSettings, pipelining
from elasticdl.worker.core.pipelining import Batch, Conditions, Phase

TASK = TaskRef(purpose=Purpose.TRAIN, number=0)


def window(phases: str) -> list[Batch]:
    """Batches from words such as ``read computing``; ``!`` marks a void batch, ``empty`` one that was read empty."""
    batches = []
    for number, word in enumerate(phases.split()):
        phase = Phase.READ if "empty" in word else Phase(word.strip("!"))
        ref = BatchRef(task=TASK, batch=number)
        batches.append(Batch(ref, phase, is_void="!" in word, is_empty="empty" in word))
    return batches


def operations(phases: str, staleness: int, conditions: Conditions, *, is_admitted: bool = False) -> list[str]:
    """Everything that may start: ``pull 1``, ``compute 0``, ``push 0 pull 1``..."""
    batches, settings = window(phases), PipelineSettings(staleness=staleness, is_admitted=is_admitted)
    found = []
    pushed = pipelining.to_push(batches, settings, conditions)
    if pushed is not None:
        batch, following = pushed
        found.append(f"push {batch.ref.batch}" + (f" pull {following.ref.batch}" if following else ""))
    for name, rule in (("pull", pipelining.to_pull), ("compute", pipelining.to_compute)):
        batch_or_none = rule(batches, settings, conditions)
        if batch_or_none is not None:
            found.append(f"{name} {batch_or_none.ref.batch}")
    return found


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ("read read", ["pull 0"]),
        ("reading read", []),
        ("pulling read", []),
        ("pulled read", ["compute 0"]),
        ("computing read", []),
        ("computed read", ["push 0 pull 1"]),
        ("computed reading", ["push 0"]),
        ("computed empty", ["push 0"]),
        ("computed", ["push 0"]),
        ("pushing read", []),
        ("pushing pulling", []),
        ("empty read", ["compute 0"]),
        ("!computing read", ["pull 1"]),
        ("!pulling read", []),
        ("!computing pulled", []),
        ("failed read", ["pull 1"]),
    ],
)
def test_without_staleness_a_pull_follows_the_push_before_it(phases: str, expected: list[str]) -> None:
    assert operations(phases, 0, Conditions()) == expected


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ("read read", ["pull 0"]),
        ("pulled read", ["pull 1", "compute 0"]),
        ("computing read", ["pull 1"]),
        ("computing pulled read", []),
        ("computed read", ["pull 1"]),
        ("computed pulling", []),
        ("computed pulled read", ["push 0", "compute 1"]),
        ("computed empty", ["push 0", "compute 1"]),
        ("computed reading", []),
        ("computed", []),
        ("computed failed", []),
        ("pushing pulled read", ["compute 1"]),
        ("pushing computing read", []),
        ("computing computed", []),
    ],
)
def test_with_staleness_1_pulls_and_pushes_run_beside_a_step(phases: str, expected: list[str]) -> None:
    assert operations(phases, 1, Conditions()) == expected


@pytest.mark.parametrize(
    ("phases", "staleness", "conditions", "expected"),
    [
        ("computed", 1, Conditions(queue_is_empty=True), ["push 0"]),
        ("computed failed failed", 1, Conditions(), ["push 0"]),
        ("pulled", 0, Conditions(auxiliary_waits=True), []),
        ("computed read", 0, Conditions(auxiliary_waits=True), ["push 0"]),
        ("pulled read", 0, Conditions(is_stopping=True), []),
        ("computed reading", 1, Conditions(is_stopping=True), ["push 0"]),
    ],
)
def test_what_else_decides(phases: str, staleness: int, conditions: Conditions, expected: list[str]) -> None:
    assert operations(phases, staleness, conditions) == expected


@pytest.mark.parametrize(
    ("phases", "conditions", "expected"),
    [
        ("computed read", Conditions(), ["push 0 pull 1"]),
        ("computed read", Conditions(auxiliary_waits=True), ["push 0"]),
        ("read", Conditions(), ["pull 0"]),
        ("read", Conditions(auxiliary_waits=True), []),
        ("pulled read", Conditions(auxiliary_waits=True), ["compute 0"]),
        ("empty read", Conditions(auxiliary_waits=True), []),
    ],
)
def test_a_batch_that_was_admitted_is_not_held_up(phases: str, conditions: Conditions, expected: list[str]) -> None:
    assert operations(phases, 0, conditions, is_admitted=True) == expected


@pytest.mark.parametrize("phases", ["pulling read", "pulled read", "computing read"])
def test_an_auxiliary_task_waits_for_a_batch_that_was_admitted(phases: str) -> None:
    assert not pipelining.may_start_auxiliary(window(phases), PipelineSettings(is_admitted=True))
    assert pipelining.may_start_auxiliary(window("read"), PipelineSettings(is_admitted=True))
    assert pipelining.may_start_auxiliary(window("pulled"), PipelineSettings())


def test_reading_ahead_is_bounded() -> None:
    settings = PipelineSettings(prefetch_batches=2)
    assert pipelining.may_read(window("computing read"), settings)
    assert not pipelining.may_read(window("computing read reading"), settings)
    assert not pipelining.may_read(window("failed reading"), settings)


def test_short_batches_are_read_in_a_row() -> None:
    settings = PipelineSettings(prefetch_batches=2)
    assert not pipelining.may_read(window("computing read read"), settings, batches_are_short=True)
    assert pipelining.may_read(window("computing read"), settings, batches_are_short=True)
    assert pipelining.may_read(window("computing read reading reading reading"), settings, batches_are_short=True)
    assert not pipelining.may_read(
        window("computing read reading reading reading reading"), settings, batches_are_short=True
    )


@pytest.mark.parametrize(
    ("phases", "expected"),
    [("pulled read", True), ("computing", False), ("computed", False), ("pushing", False), ("!computed", True)],
)
def test_auxiliary_tasks_start_between_batches(phases: str, expected: bool) -> None:
    assert pipelining.is_between_batches(window(phases)) is expected


def test_a_failed_read_is_reported_after_the_batches_before_it() -> None:
    assert pipelining.to_report(window("pushing failed")) is None
    reported = pipelining.to_report(window("!pushing failed"))
    assert reported is not None and reported.ref.batch == 1


@pytest.mark.parametrize(("staleness", "prefetch"), [(2, 1), (-1, 1), (0, 0)])
def test_settings_out_of_range_are_refused(staleness: int, prefetch: int) -> None:
    with pytest.raises(ValueError, match=r"staleness|read ahead"):
        PipelineSettings(staleness=staleness, prefetch_batches=prefetch)


def test_a_job_says_what_its_workers_overlap() -> None:
    asynchronous = replace(spec("memory://job"), prefetch_batches=5)
    bounded = replace(asynchronous, max_staleness=3)
    assert PipelineSettings.of(asynchronous, staleness=1) == PipelineSettings(staleness=1, prefetch_batches=5)
    assert PipelineSettings.of(bounded, staleness=1) == PipelineSettings(prefetch_batches=5, is_admitted=True)
    synchronous = PipelineSettings.of(replace(asynchronous, synchronous=True), staleness=0)
    assert synchronous == PipelineSettings(prefetch_batches=5, is_admitted=True, joins_pulls=False)
