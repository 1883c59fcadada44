"""Classifies failures: the user's code, the data, or the environment; with the message for the user."""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.shared.errors import PermanentError, ProtocolError, UserError
from elasticdl.shared.kubernetes.names import without_pod_folders
from elasticdl.shared.messages.events import FailureKind
from elasticdl.worker.model.user.calls import UserCodeError


class DataError(UserError):
    """The data, rather than the user's code, is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a batch or the worker failed.

    Attributes:
        kind: what is wrong: user code, data, ...
        traceback: the user's frames, if it was the user's code.
    """

    kind: FailureKind
    message: str
    traceback: str = ""

    @classmethod
    def of(cls, kind: FailureKind, message: str, traceback: str = "") -> Failure:
        """With texts for users."""
        return cls(kind=kind, message=without_pod_folders(message), traceback=without_pod_folders(traceback))

    @property
    def shown(self) -> str:
        """The message, and the traceback if it shows a file of the user."""
        lines = self.traceback if "File" in self.traceback else ""
        return f"{self.message}\n{lines}".strip()


def of_user_error(error: UserError, kind: FailureKind) -> Failure:
    """The failure for an error in the user's input or code."""
    if isinstance(error, UserCodeError):
        return Failure.of(FailureKind.USER_CODE, str(error), error.traceback)
    return Failure.of(FailureKind.DATA if isinstance(error, DataError) else kind, str(error))


def of_start(error: UserError | PermanentError | ProtocolError) -> Failure:
    """The failure for an error that ends the worker: the model does not load, or the environment refuses."""
    if isinstance(error, UserError):
        return of_user_error(error, FailureKind.USER_CODE)
    return Failure.of(FailureKind.ENVIRONMENT, str(error))
