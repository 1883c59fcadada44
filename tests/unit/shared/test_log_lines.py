"""The lines of a log that explain the end of its process."""

from __future__ import annotations

import json

import pytest

from elasticdl.shared.messages.events import ExitCause
from elasticdl.shared.pods.log_lines import STACK_LINES, explaining_lines, readable_lines

STACK = 'no progress within the batch deadline of 3 s\n  File "/m/model.py", line 3, in feed\n    wait()'


def log(*events: tuple[str, str]) -> list[str]:
    return [json.dumps({"level": level, "event": event, "job": "j"}) for level, event in events]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_worker_that_hung_is_explained_by_the_place_in_the_users_code(is_local: bool) -> None:
    lines = ["Thread 0x01 (most recent call first):", *log(("info", "before"), ("error", STACK), ("info", "after"))]
    readable = readable_lines(lines)
    if is_local:
        readable = "\n".join(readable).splitlines()
    assert explaining_lines(readable, ExitCause.HUNG) == f"error: {STACK}"


def test_a_refusal_is_explained_by_its_reason_and_not_by_what_was_logged_before_it() -> None:
    reason = {"level": "error", "event": "the worker can't continue", "reason": "stream not found"}
    readable = readable_lines([*log(*[("info", "waiting")] * 5), json.dumps(reason)])
    assert explaining_lines(readable, ExitCause.REFUSED) == "error: the worker can't continue reason=stream not found"


@pytest.mark.parametrize("cause", [ExitCause.REFUSED, ExitCause.OWN_FAULT])
def test_what_other_threads_report_after_the_error_does_not_hide_it(cause: ExitCause) -> None:
    reason = {"level": "error", "event": "the worker can't continue", "reason": "stream not found"}
    readable = readable_lines([json.dumps(reason), *log(*[("info", "waiting for ps")] * 9)])
    assert explaining_lines(readable, cause) == "error: the worker can't continue reason=stream not found"


def test_a_log_without_an_error_explains_no_refusal() -> None:
    readable = readable_lines(log(*[("info", "waiting for ps")] * 9))
    assert explaining_lines(readable, ExitCause.REFUSED) == ""


def test_the_first_line_of_an_error_is_kept_and_so_is_the_end_of_the_log() -> None:
    """The hint of a message, and the exception of a traceback, come last."""
    reason = {"level": "error", "event": "the worker can't continue", "reason": "no model\n1\n2\n3\nInstall it"}
    readable = "\n".join(readable_lines([json.dumps(reason)])).splitlines()
    shown = explaining_lines(readable, ExitCause.REFUSED)
    assert shown == "error: the worker can't continue reason=no model\n3\nInstall it"


def test_a_long_stack_is_cut() -> None:
    readable = readable_lines(log(("error", "\n".join(map(str, range(99)))), ("info", "after")))
    shown = explaining_lines("\n".join(readable).splitlines(), ExitCause.HUNG).splitlines()
    assert (len(shown), shown[0]) == (STACK_LINES, "error: 0"), "the sentence comes first"
