"""Procedures: sequential protocols inside a decision core, written as generators.

A procedure yields one command at a time and is resumed with the command's result, or with its error raised at the
``yield``. So a protocol of many steps reads from top to bottom, errors are handled with ``try`` and ``except``, and no
step does any I/O: the shell executes the commands, and the simulator does so on a virtual clock.

    def _take_snapshot(self) -> Procedure[None]:
        for uri, content in self._writer.objects(cut):
            yield WriteObject(uri=uri, content=content)
        yield RegisterSnapshot(uri=uri)
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from elasticdl.shared.errors import InvariantError

C = TypeVar("C")
R = TypeVar("R")

Procedure: TypeAlias = Generator[Any, Any, R]
"""A procedure that yields commands and returns ``R``; procedures call each other with ``yield from``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued(Generic[C]):
    """A command that a procedure waits for; ``number``: identifies it among all commands of one ``Procedures``."""

    number: int
    command: C


class Procedures(Generic[C]):
    """The running procedures of one core. Not thread-safe: the core's runner calls it from one thread at a time."""

    def __init__(self) -> None:
        self._waiting: dict[int, Procedure[None]] = {}
        self._issued: list[Issued[C]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, procedure: Procedure[None]) -> None:
        """Run a procedure up to its first command. Raises ``Exception``: whatever the procedure raises before that."""
        self._advance(procedure, procedure.send, None)

    def done(self, number: int, result: Any) -> None:
        """Resume the procedure that waits for a command. Raises ``InvariantError`` if none waits for that number."""
        procedure = self._take(number)
        self._advance(procedure, procedure.send, result)

    def failed(self, number: int, error: BaseException) -> None:
        """Raise a command's error in the procedure that waits for it; raises as ``done`` does."""
        procedure = self._take(number)
        self._advance(procedure, procedure.throw, error)

    def drain(self) -> Sequence[Issued[C]]:
        """The commands issued since the last call, in order."""
        issued, self._issued = self._issued, []
        return issued

    def _take(self, number: int) -> Procedure[None]:
        procedure = self._waiting.pop(number, None)
        if procedure is None:
            raise InvariantError(f"no procedure waits for command {number}")
        return procedure

    def _advance(self, procedure: Procedure[None], step: Callable[[Any], Any], value: Any) -> None:
        try:
            command = step(value)
        except StopIteration:
            return
        self._count += 1
        self._waiting[self._count] = procedure
        self._issued.append(Issued(number=self._count, command=command))
