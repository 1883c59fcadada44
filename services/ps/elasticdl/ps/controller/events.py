"""What the shell reports to the controller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.commands import Command
from elasticdl.shared.process.core_runner import TimerFired


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStarted:
    """The process is ready to claim its name. The first event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSucceeded:
    """A command was executed; ``result``: what the command's docstring says; None if it says nothing."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFailed:
    """A command was not executed, or not completely."""

    number: int
    error: ElasticDLError


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReceived:
    """The master ordered something, and ``PsController.admit`` accepted it."""

    command: Command
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyChanged:
    """The job's key-value store has a new value; ``name``: a ps, or ``subjects.PLACEMENT``."""

    name: str
    entry: KeyValueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCreated:
    """The first worker sent the initial weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAbsorbed:
    """A push was applied for which ``PsController.is_notable`` was true."""

    step: int


PsEvent = (
    ProcessStarted
    | CommandSucceeded
    | CommandFailed
    | OrderReceived
    | KeyChanged
    | ModelCreated
    | BatchAbsorbed
    | TimerFired
)
