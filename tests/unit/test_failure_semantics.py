"""The numbers on the page about failures are those of the code."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from pathlib import Path

import pytest

from elasticdl.cli.local.restart_policy import RestartLimits
from elasticdl.master.core.closing.apply import DAMAGED_MAX
from elasticdl.master.core.closing.stopping import STOP_S_MAX
from elasticdl.shared.failure_detection.heartbeats import HEARTBEAT_TIMEOUT_S
from elasticdl.shared.job.spec import FIRST_BATCH_FACTOR, JobSpec, Limits
from elasticdl.shared.process.exit_codes import EXIT_HUNG
from elasticdl.shared.process.settings import ProcessSettings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failures.md"
LIMITS, RESTARTS = Limits(), RestartLimits()
NUMBERS = {5: "five"}
"""Those that the page spells out."""


def default(cls: type[JobSpec] | type[ProcessSettings], name: str) -> float:
    (value,) = [each.default for each in dataclasses.fields(cls) if each.name == name]
    assert isinstance(value, float)
    return value


@pytest.mark.parametrize(
    "stated",
    [
        f"no heartbeat for {HEARTBEAT_TIMEOUT_S:g} s",
        f"no progress for {LIMITS.batch_deadline_s:g} s on a minibatch",
        f"no progress for {replace(LIMITS, batch_deadline_s=1.0).lease_deadline_s:g} s at least",
        f"may take `--batch_deadline_secs` ({LIMITS.batch_deadline_s:g})",
        f"may take {FIRST_BATCH_FACTOR:g} times as long",
        f"exit code {EXIT_HUNG}",
        f"killed after {HEARTBEAT_TIMEOUT_S:g} s without one",
        f"same minibatch in {LIMITS.crashes_per_batch_max} workers",
        f"up to {LIMITS.window_s / 60:g} minutes of work",
        f"NATS is away for longer than {default(ProcessSettings, 'broker_retry_s') / 60:g} minutes",
        f"since that snapshot, {default(JobSpec, 'snapshot_interval_s'):g} s by default",
        f"all exit within {STOP_S_MAX:g} s",
        f"after {NUMBERS[DAMAGED_MAX]} damaged ones in a row",
        f"in the code of the model file | {LIMITS.attempts_max} attempts",
        f"run the same minibatch, or hang in it | {LIMITS.crashes_per_batch_max} crashes",
        f"unresponsive while they run the same minibatch | {LIMITS.relaunches_max} kills",
        f"same minibatch in {LIMITS.relaunches_max} workers that were killed",
        f"without progress | {LIMITS.relaunches_max} restarts",
        f"more than {RESTARTS.crashes_max} times in a minute",
    ],
)
def test_a_number_is_that_of_the_code(stated: str) -> None:
    assert stated in PAGE.read_text()


def test_a_minute_is_the_window_of_the_masters_crashes() -> None:
    assert RESTARTS.window_s == 60
