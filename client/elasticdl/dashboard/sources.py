"""Where the dashboard's jobs come from: a port, which the command line implements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from elasticdl.shared.bus.ports import JobReader
from elasticdl.shared.names import JobId


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job in the overview; ``key`` names it in requests."""

    key: str
    job: str
    state: str
    submitted: str = ""
    model: str = ""
    data: str = ""


class JobSource(Protocol):
    """A job whose log can be read."""

    @property
    def job(self) -> JobId:
        """The job's id."""
        ...

    def is_running(self) -> bool:
        """Whether the log may still grow. Takes long enough that it is called on another thread."""
        ...

    def open(self) -> AbstractAsyncContextManager[JobReader]:
        """The job's event log."""
        ...


class Jobs(Protocol):
    """The jobs that the dashboard shows."""

    @property
    def are_in_cluster(self) -> bool:
        """Whether ``find`` takes the names that a controller's log has, too: ``NAMESPACE/NAME``."""
        ...

    def rows(self) -> Sequence[JobRow]:
        """All of them, the latest first. Takes long enough that it is called on another thread."""
        ...

    def find(self, key: str) -> JobSource:
        """One of them. Raises ``UserError``: there is none."""
        ...


class FleetSource(Protocol):
    """The log of a controller, read from its beginning."""

    @property
    def name(self) -> str:
        """What people know it as."""
        ...

    @property
    def times(self) -> Sequence[float]:
        """The times of the decisions that are read, in seconds."""
        ...

    def read(self) -> bool:
        """Read what is new; returns whether there was anything. Takes long enough that it is called on another thread.

        Raises:
            ElasticDLError: it can't be read.
        """
        ...

    def at(self, number: int) -> Mapping[str, Any]:
        """The fleet after a decision, as JSON values."""
        ...

    def samples(self) -> Mapping[str, Any]:
        """Curves over the decisions, as ``panels.curves`` gives them."""
        ...
