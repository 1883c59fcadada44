"""What the callbacks of the model file have done so far."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Callbacks:
    """The hooks that have run, and what they ask for.

    Attributes:
        epochs: epochs whose ``on_epoch_begin`` has run. Tasks of later ones are not dispatched.
        is_active: ``on_train_begin`` has run, and no ``on_train_end`` after it.
        stops: a hook has set ``stop_training``.
        note: why a hook asks for something, for people.
        rate: the learning rate that the hooks left; None: the optimizer has a schedule, or no hook has run.
        rates: (first epoch, learning rate), in the order of the epochs.
    """

    epochs: int = 0
    is_active: bool = False
    stops: bool = False
    note: str = ""
    rate: float | None = None
    rates: list[tuple[int, float]] = field(default_factory=list)

    @property
    def next_task(self) -> int:
        """Number of the next task: ``2 k`` ends epoch k, from 1; ``2 k + 1`` begins training after k epochs."""
        return 2 * self.epochs + (not self.is_active)

    def on_result(self, task: int, *, ended: bool) -> None:
        """Apply that the hooks of a task have run; ``ended``: ``on_train_end`` was one of them."""
        self.epochs = task // 2 + (not ended)
        self.is_active = not ended

    def rate_of(self, epoch: int) -> float | None:
        """The learning rate of an epoch, from 0; None: that of the optimizer."""
        return next((rate for first, rate in reversed(self.rates) if first <= epoch), None)
