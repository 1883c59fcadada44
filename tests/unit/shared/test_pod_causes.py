"""The classification of exits: reasons of a platform come first, then signals, then exit codes."""

from __future__ import annotations

import pytest

from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.causes import classify_exit, describe_exit


@pytest.mark.parametrize(
    ("exit_code", "reason", "cause"),
    [
        (-9, "OOMKilled", ExitCause.OUT_OF_MEMORY),
        (-15, "Evicted", ExitCause.PREEMPTED),
        (0, "PreemptionByScheduler", ExitCause.PREEMPTED),
        (0, "NodeLost", ExitCause.NODE_LOST),
        (0, "Completed", ExitCause.FINISHED),
        (1, "Error", ExitCause.REFUSED),
        (134, "Error", ExitCause.OWN_FAULT),
        (79, "Error", ExitCause.HUNG),
    ],
)
def test_the_reason_of_the_platform_comes_first(exit_code: int, reason: str, cause: ExitCause) -> None:
    assert classify_exit(exit_code, reason) is cause


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (0, ExitCause.STOPPED),
        (-15, ExitCause.STOPPED),
        (-9, ExitCause.STOPPED),
        (75, ExitCause.STOPPED),
        (1, ExitCause.REFUSED),
        (-11, ExitCause.OWN_FAULT),
        (79, ExitCause.HUNG),
    ],
)
def test_a_deleted_pod_has_stopped_unless_it_failed(exit_code: int, cause: ExitCause) -> None:
    assert classify_exit(exit_code, is_deleted=True) is cause


@pytest.mark.parametrize(
    ("exit_code", "cause", "text"),
    [
        (-9, ExitCause.OUT_OF_MEMORY, "out of memory"),
        (0, ExitCause.NODE_LOST, "node lost"),
        (-9, ExitCause.PREEMPTED, "SIGKILL"),
        (3, ExitCause.OWN_FAULT, "exit code 3"),
        (79, ExitCause.HUNG, "batch deadline exceeded"),
    ],
)
def test_exits_are_described_by_what_is_known(exit_code: int, cause: ExitCause, text: str) -> None:
    assert describe_exit(exit_code, cause) == text
