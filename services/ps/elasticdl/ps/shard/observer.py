"""What the model core reports to its process."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives notifications. They are sent under the core's lock, so an observer must neither block nor call back."""

    def initialised(self) -> None:
        """A worker sent the initial weights."""

    def stepped(self, step: int) -> None:
        """A batch was absorbed; ``step`` is the number of absorbed batches."""
