"""What the API server answers, as errors."""

from __future__ import annotations

import json

import pytest

from elasticdl.shared.errors import TransientError
from elasticdl.shared.kubernetes import kinds
from elasticdl.shared.kubernetes.refusals import (
    ApiRefusedError,
    Request,
    WatchExpiredError,
    error_of_answer,
    error_of_status,
)

CREATE = Request(verb="create", kind=kinds.POD, namespace="team-a", name="job-1")


def body(reason: str, message: str, **details: object) -> bytes:
    return json.dumps({"kind": "Status", "reason": reason, "message": message, "details": details}).encode()


def refusal(status: int, content: bytes) -> ApiRefusedError:
    error = error_of_answer(CREATE, status, {}, content)
    assert isinstance(error, ApiRefusedError)
    return error


def test_a_refusal_says_what_was_asked_and_why_it_was_refused() -> None:
    error = refusal(404, body("NotFound", 'namespaces "team-a" not found'))
    assert str(error) == 'Kubernetes refuses to create Pod job-1 in namespace team-a: namespaces "team-a" not found'
    assert error.is_not_found and not error.already_exists


def test_refusals_are_told_apart() -> None:
    assert refusal(409, body("AlreadyExists", "")).already_exists
    assert refusal(409, body("Conflict", "")).is_conflict
    assert refusal(403, body("Forbidden", "exceeded quota: small, requested: pods=1")).is_quota
    lacking = refusal(403, body("Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"'))
    assert lacking.is_lacking_right and not lacking.is_quota
    assert not refusal(403, body("Forbidden", "exceeded quota: small, requested: pods=1")).is_lacking_right
    assert not refusal(403, body("Forbidden", 'violates PodSecurity "restricted:latest"')).is_lacking_right


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_an_overloaded_server_is_asked_again_when_it_says(status: int) -> None:
    error = error_of_answer(CREATE, status, {"Retry-After": "7"}, body("", "too much"))
    assert isinstance(error, TransientError)
    assert error.retry_after_s == 7
    later = error_of_answer(CREATE, status, {}, body("", "too much", retryAfterSeconds=3))
    assert isinstance(later, TransientError)
    assert later.retry_after_s == 3


def test_an_answer_that_is_no_status_is_shown() -> None:
    assert "<html>proxy</html>" in str(error_of_answer(CREATE, 502, {}, b"<html>proxy</html>"))
    assert "HTTP status 418" in str(refusal(418, b""))


def test_an_expired_watch_lists_again_at_once() -> None:
    error = error_of_status(CREATE, {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    assert isinstance(error, WatchExpiredError)
    assert error.retry_after_s == 0
