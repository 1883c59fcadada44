"""The states of a job at any point of its log, fast enough for a slider. Pure.

A checkpoint every few hundred records makes each point a short fold away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticdl.master.core.evolve import evolve
from elasticdl.master.core.fold import Fold
from elasticdl.master.core.state import State
from elasticdl.shared.messages.events import LogRecord
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.views.curves import Curves, Point
from elasticdl.views.processes import Processes
from elasticdl.views.replays.checkpoints import Checkpoint, Checkpoints, Copy
from elasticdl.views.replays.marks import Marks
from elasticdl.views.wall_time.fold import WallTimeFold
from elasticdl.views.wall_time.values import WallTime

INTERVAL = 500
"""Records between two checkpoints: so many are folded in some 20 ms, with a thousand workers."""
STATES_MAX = 4
"""States that are kept: panels ask for the point before while the slider is at the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """A point of a curve, and the number of the record that made it known."""

    seq: int
    point: Point


class Replay:
    """A log that was read from its beginning, and what it was folded to at each of its points."""

    def __init__(self, *, interval: int = INTERVAL) -> None:
        self.records: list[LogRecord] = []
        self.curve_points: list[CurvePoint] = []
        self.processes = Processes()
        self.marks = Marks()
        self._checkpoints = Checkpoints(interval)
        self._fold = Fold(after_record=self._find_points)
        self._wall_time = WallTimeFold()
        self._curves = Curves()
        self._states: dict[int, State] = {}

    def extend(self, records: Sequence[LogRecord]) -> None:
        """Take the next records."""
        for record in records:
            self.records.append(record)
            self._fold.take(record)
            self._wall_time.take(record)
            self.processes.take(record)
            self.marks.take(record)
            if isinstance(record.envelope.event, RunMeasured) and record.envelope.event.ended_s:
                self.finish()
            if self._fold.state.seq:
                self._checkpoints.offer(len(self.records), self._checkpoint)

    def finish(self) -> None:
        """The run has ended, so no decision is on its way: its last records are not held back any more."""
        self._fold.finish()

    def _find_points(self, state: State, record: LogRecord) -> None:
        # The last record that was taken, not the one that the fold has held back until now: numbers have to ascend.
        last = len(self.records)
        self.curve_points += [CurvePoint(seq=last, point=point) for point in self._curves.after(state, record)]

    def _checkpoint(self) -> Checkpoint:
        state = self._fold.state
        return Checkpoint(
            seq=len(self.records), state_seq=state.seq, state=Copy.of(state), wall_time=Copy.of(self._wall_time)
        )

    def state_at(self, seq: int) -> State:
        """The state after a record, until more are taken. It is shared between calls: do not change it."""
        if seq == len(self.records) and not self._fold.held_back:
            return self._fold.state
        if (known := self._states.pop(seq, None)) is not None:
            self._states[seq] = known  # The last one is that which was asked for last.
            return known
        self._states[seq] = state = self._last_state() if seq == len(self.records) else self._folded_to(seq)
        if len(self._states) > STATES_MAX:
            del self._states[next(iter(self._states))]
        return state

    def _folded_to(self, seq: int) -> State:
        checkpoint = self._checkpoints.before(seq)
        folding, after = Fold(), 0
        if checkpoint is not None:
            # Records that the state has seen already, such as decisions, are repetitions, which a fold ignores.
            folding, after = Fold(checkpoint.state.value()), checkpoint.state_seq
        for record in self.records[after:seq]:
            folding.take(record)
        return folding.finish()

    def _last_state(self) -> State:
        """The state after the last record, which a live page asks for again and again."""
        if self._fold.state.spec is None or not self._checkpoints.is_far_from(len(self.records)):
            return self._folded_to(len(self.records))
        state: State = Copy.of(self._fold.state).value()
        for record in self._fold.held_back:
            evolve(state, record)
        return state

    def wall_time_at(self, seq: int) -> WallTime:
        """Where the time until a record went."""
        if seq == len(self.records):
            return self._wall_time.result()
        checkpoint = self._checkpoints.before(seq)
        fold: WallTimeFold = checkpoint.wall_time.value() if checkpoint is not None else WallTimeFold()
        for record in self.records[checkpoint.seq if checkpoint is not None else 0 : seq]:
            fold.take(record)
        return fold.result()
