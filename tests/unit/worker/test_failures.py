"""Whose fault a failure is."""

from __future__ import annotations

from elasticdl.shared.errors import PermanentError, UserError
from elasticdl.shared.messages.events import FailureKind
from elasticdl.worker.failures import Failure, of_start, of_user_error
from elasticdl.worker.model.user.calls import UserCodeError


def test_user_code_is_told_from_data() -> None:
    raised = UserCodeError("feed() raised", traceback="line 3")
    expected = Failure(kind=FailureKind.USER_CODE, message="feed() raised", traceback="line 3")
    assert of_user_error(raised, FailureKind.DATA) == expected
    assert of_user_error(UserError("corrupt"), FailureKind.DATA) == Failure(kind=FailureKind.DATA, message="corrupt")


def test_a_start_fails_by_the_users_code_or_the_environment() -> None:
    assert of_start(UserError("no loss")).kind is FailureKind.USER_CODE
    assert of_start(PermanentError("disk full")).kind is FailureKind.ENVIRONMENT
