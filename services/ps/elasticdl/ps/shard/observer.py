"""What a core tells its shell."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Who wants to know what happened. Called under the core's lock, so it must not block nor call back."""

    def initialised(self) -> None:
        """A worker's Initialise made the model."""

    def stepped(self, step: int) -> None:
        """A batch was absorbed; so many are now."""
