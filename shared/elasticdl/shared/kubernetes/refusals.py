"""Answers of the API server that are no success, as errors of this package with one sentence each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.shared.errors import ElasticDLError, PermanentError, TransientError
from elasticdl.shared.kubernetes.kinds import Kind, Manifest

_TOO_MANY_REQUESTS, _GONE, _SERVER_ERRORS = 429, 410, 500
_RETRY_S = 1.0
"""Seconds until the next try if the answer names no other time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked of the API server, for messages.

    Attributes:
        verb: as access rules name it: ``create``, ``get``, ``list``, ``watch``, ``delete``, ``patch``.
        namespace: its namespace; empty: it is in none.
        name: its name; empty: all objects.
    """

    verb: str
    kind: Kind
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        target = f"{self.kind.name} {self.name}" if self.name else self.kind.plural
        return f"{self.verb} {target}" + (f" in namespace {self.namespace}" if self.namespace else "")


class ApiRefusedError(PermanentError):
    """The API server refuses a request.

    Attributes:
        reason: the API's word for it: ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Forbidden``, ``Invalid``.
    """

    def __init__(self, request: Request, *, status: int, reason: str, detail: str) -> None:
        super().__init__(f"Kubernetes refuses to {request}: {detail or reason or f'HTTP status {status}'}")
        self.status = status
        self.reason = reason
        self.detail = detail

    @property
    def is_not_found(self) -> bool:
        """There is no such object."""
        return self.reason == "NotFound"

    @property
    def already_exists(self) -> bool:
        """There is an object of this name."""
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """The object is not the one that the request names by its uid or version."""
        return self.reason == "Conflict"

    @property
    def is_lacking_right(self) -> bool:
        """The user has no right to the request, whatever the object says."""
        return self.reason == "Forbidden" and " cannot " in self.detail

    @property
    def is_quota(self) -> bool:
        """A ResourceQuota of the namespace is used up."""
        return self.reason == "Forbidden" and "exceeded quota" in self.detail


class WatchExpiredError(TransientError):
    """The API server has forgotten the version from which a watch was to continue: list again."""


def error_of_answer(request: Request, status: int, headers: Mapping[str, str], body: bytes) -> ElasticDLError:
    """The error for an answer whose status is no success; ``headers``: of the answer; ``Retry-After`` is read."""
    return error_of_status(request, _status(status, body), headers)


def error_of_status(request: Request, status: Manifest, headers: Mapping[str, str] | None = None) -> ElasticDLError:
    """The error for a ``Status`` object, which is also how a watch reports its end."""
    code, reason, detail = status.get("code", 0), status.get("reason", ""), status.get("message", "")
    if code == _GONE:
        return WatchExpiredError(f"can't {request}: {detail or reason}", retry_after_s=0.0)
    if code == _TOO_MANY_REQUESTS or code >= _SERVER_ERRORS:
        return TransientError(
            f"Kubernetes can't {request} now: {detail or reason or f'HTTP status {code}'}",
            retry_after_s=_retry_after_s(headers or {}, status),
        )
    return ApiRefusedError(request, status=code, reason=reason, detail=detail)


def _status(code: int, body: bytes) -> Manifest:
    try:
        status = json.loads(body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("kind") == "Status":
        return status | {"code": code}
    return {"code": code, "message": body[:300].decode(errors="replace").strip()}


def _retry_after_s(headers: Mapping[str, str], status: Manifest) -> float:
    named = headers.get("Retry-After", "") or (status.get("details") or {}).get("retryAfterSeconds", "")
    return max(float(named), _RETRY_S) if str(named).isdigit() else _RETRY_S
