"""A log to a state, record by record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.state import State
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.shared.names import Service


class Fold:
    """Folds records that come in the order of the log, as the live master folded them.

    A decision counts right after the last input that its master knew (``after_seq``); other services go on appending
    while it is on its way to the log, so its place there may be later. Inputs are therefore held back until a record of
    a master shows that no decision will be put before them: masters append one record at a time, each names the one
    before, and nobody decides before having read their own last input. So what is held back is little.

    Args:
        state: what was folded already; this is changed.
        before_decision: is called before a decision is folded, with its record.
    """

    def __init__(
        self, state: State | None = None, before_decision: Callable[[State, LogRecord], None] | None = None
    ) -> None:
        self.state = state or State()
        self._before_decision = before_decision
        self._held: deque[LogRecord] = deque()

    def take(self, record: LogRecord) -> None:
        """The next record of the log."""
        event = record.envelope.event
        if isinstance(event, Decided):
            self._release(event.after_seq)
            if self._before_decision:
                self._before_decision(self.state, record)
            evolve(self.state, record)
            return
        self._held.append(record)
        if record.envelope.service is Service.MASTER:
            self._release(record.seq)

    def finish(self) -> State:
        """The log ends here; the state with everything in it."""
        while self._held:
            evolve(self.state, self._held.popleft())
        return self.state

    def _release(self, up_to: int) -> None:
        while self._held and self._held[0].seq <= up_to:
            evolve(self.state, self._held.popleft())


def fold(records: Iterable[LogRecord]) -> State:
    """Fold a log (or its beginning) into a state."""
    folding = Fold()
    for record in records:
        folding.take(record)
    return folding.finish()
