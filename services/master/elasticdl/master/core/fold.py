"""``Fold``: applies a whole log, record by record."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.state import State
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.shared.names import Service


class Fold:
    """Applies records in the order of the log, with the same result as in the live master.

    A decision is applied right after the last input that its master knew (``after_seq``). Other services append
    while the decision is on its way to the log, so its place in the log may be later. Inputs are therefore held back
    until a record of a master shows that no decision belongs before them: masters append one record at a time, each
    names the one before, and a master decides only after it has read its own last input. Few inputs are held back.

    Args:
        state: the state to continue from; it is changed.
        before_decision: is called with each decision before it is applied.
        after_record: is called with each record once it is applied.
    """

    def __init__(
        self,
        state: State | None = None,
        before_decision: Callable[[State, LogRecord, Decided], None] | None = None,
        after_record: Callable[[State, LogRecord], None] | None = None,
    ) -> None:
        self.state = state or State()
        self._before_decision = before_decision
        self._after_record = after_record
        self._apply: Callable[[State, LogRecord], object] = self._apply_and_tell if after_record else evolve
        self._held_back: deque[LogRecord] = deque()

    def take(self, record: LogRecord) -> None:
        """Take the next record of the log."""
        event = record.envelope.event
        if isinstance(event, Decided):
            self._release(event.after_seq)
            if self._before_decision:
                self._before_decision(self.state, record, event)
            self._apply(self.state, record)
            return
        self._held_back.append(record)
        if record.envelope.service is Service.MASTER:
            self._release(record.seq)

    @property
    def held_back(self) -> Collection[LogRecord]:
        """The records that are taken and not applied yet."""
        return self._held_back

    def finish(self) -> State:
        """Apply what was held back at the end of the log; returns the state."""
        while self._held_back:
            self._apply(self.state, self._held_back.popleft())
        return self.state

    def _release(self, up_to: int) -> None:
        held_back = self._held_back
        while held_back and held_back[0].seq <= up_to:
            self._apply(self.state, held_back.popleft())

    def _apply_and_tell(self, state: State, record: LogRecord) -> None:
        evolve(state, record)
        if self._after_record:
            self._after_record(state, record)


def fold(records: Iterable[LogRecord]) -> State:
    """Fold a log, or the beginning of one, to a state."""
    folding = Fold()
    for record in records:
        folding.take(record)
    return folding.finish()
