"""Whose fault a failure is, and which record is bad."""

from __future__ import annotations

import pytest

from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.events import FailureKind
from elasticdl.worker.failures import Failure, name_record, of_start, of_user_error
from elasticdl.worker.model.user_code import UserCodeError

WHOLE = Failure(kind=FailureKind.USER_CODE, message="feed() raised")


def test_user_code_is_told_from_data() -> None:
    raised = UserCodeError("feed() raised", traceback="line 3")
    expected = Failure(kind=FailureKind.USER_CODE, message="feed() raised", traceback="line 3")
    assert of_user_error(raised, FailureKind.DATA) == expected
    assert of_user_error(UserError("corrupt"), FailureKind.DATA) == Failure(kind=FailureKind.DATA, message="corrupt")


def test_a_start_fails_by_the_users_code_or_the_environment() -> None:
    assert of_start(UserError("no loss")).kind is FailureKind.USER_CODE
    assert of_start(PermanentError("disk full")).kind is FailureKind.ENVIRONMENT


@pytest.mark.parametrize("bad", range(3))
def test_the_bad_record_is_named(bad: int) -> None:
    def feed_one(position: int) -> None:
        if position == bad:
            raise UserCodeError("feed() raised ValueError", traceback="line 3")

    named = name_record(WHOLE, [40, 7, 19], feed_one)
    assert named.message == f"record {[40, 7, 19][bad]} (from 0): feed() raised ValueError"
    assert named.traceback == "line 3"


def test_records_that_are_bad_only_together_are_named_as_a_range() -> None:
    assert name_record(WHOLE, [40, 7, 19], lambda position: None).message == (
        "records 7 to 40 (from 0) together: feed() raised"
    )
