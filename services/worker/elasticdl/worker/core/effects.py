"""What the core orders while it handles one event."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.shared.process.core_runner import SetTimer
from elasticdl.shared.process.procedures import Procedure, Procedures
from elasticdl.worker.core.commands import Command, Step


class Effects:
    """Collects commands in the order of their issue, those of procedures included."""

    def __init__(self) -> None:
        self.now_s = 0.0
        """Monotonic time of the event that is handled."""
        self._commands: list[Command | SetTimer] = []
        self._procedures: Procedures[Step] = Procedures()

    def issue(self, command: Command | SetTimer) -> None:
        """Order a command."""
        self._commands.append(command)

    def start(self, procedure: Procedure[None]) -> None:
        """Run a procedure up to its first command; raises what the procedure raises before that."""
        self._advance(lambda: self._procedures.start(procedure))

    def done(self, number: int, result: object) -> None:
        """Resume the procedure that waits for a command; raises what the procedure raises."""
        self._advance(lambda: self._procedures.done(number, result))

    def failed(self, number: int, error: BaseException) -> None:
        """Raise a command's error in its procedure; raises what the procedure raises."""
        self._advance(lambda: self._procedures.failed(number, error))

    def drain(self) -> list[Command | SetTimer]:
        """The commands that were issued since the last call."""
        commands, self._commands = self._commands, []
        return commands

    def _advance(self, resume: Callable[[], None]) -> None:
        try:
            resume()
        finally:
            self._commands.extend(self._procedures.drain())
