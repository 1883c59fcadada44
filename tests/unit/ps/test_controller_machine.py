"""Any order of events, outcomes and failures: the controller's invariants hold, and every snapshot can be restored."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.unit.ps.controller_shell import PS, Broker, Shell
from tests.unit.ps.example import BATCHES

from elasticdl.ps.controller.commands import Lane
from elasticdl.ps.shard.admission import RefusedError
from elasticdl.ps.snapshots.policy import SnapshotPolicy
from elasticdl.ps.snapshots.reader import restore
from elasticdl.shared.errors import FencedError, TransientError
from elasticdl.shared.messages.commands import ClosePin, OpenPin, TakeSnapshot
from elasticdl.shared.messages.events import PsStarted, SnapshotTaken
from elasticdl.shared.model.rows.snapshot_rows import read_chain
from elasticdl.shared.storage import MemoryStore

POLICY = SnapshotPolicy(interval_s=2.0, first_s=1.0, steps=3, chain_max=2, chains_kept=1)


class ControllerMachine(RuleBasedStateMachine):
    """One ps that pushes, orders, time, failures and deaths happen to."""

    @initialize()
    def begin(self) -> None:
        self.broker, self.store = Broker(), MemoryStore()
        self.shell = Shell(self.broker, self.store, policy=POLICY)
        self.shell.start()
        self.shell.initialise()
        self.shell.run()
        self.requests = 0

    @rule(count=st.integers(1, 4))
    def push(self, count: int) -> None:
        """Push the next batches, if the ps serves."""
        for _ in range(count):
            step = self.shell.core.step
            if step < len(BATCHES):
                try:
                    self.shell.push(*BATCHES[step])
                except RefusedError:
                    return

    @rule(lane=st.sampled_from(Lane))
    def execute(self, lane: Lane) -> None:
        if self.shell.waiting[lane]:
            self.shell.execute(lane)

    @rule()
    def execute_all(self) -> None:
        self.shell.run()

    @precondition(lambda self: self.shell.joined)
    @rule()
    def fail_storage(self) -> None:
        waiting = self.shell.waiting[Lane.STORAGE]
        if waiting and type(waiting[0].command).__name__.startswith(("Write", "List", "Delete")):
            self.shell.fail(Lane.STORAGE, TransientError("the store is away"))

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def advance(self, seconds: float) -> None:
        self.shell.advance(seconds)

    @precondition(lambda self: self.shell.joined)
    @rule(again=st.booleans(), flush=st.booleans())
    def order(self, again: bool, flush: bool) -> None:
        self.requests += 0 if again and self.requests else 1
        self.shell.order(TakeSnapshot(ps=PS, request=self.requests, reason="test", flush=flush))

    @precondition(lambda self: self.shell.joined)
    @rule(evaluation=st.integers(1, 2))
    def pin(self, evaluation: int) -> None:
        try:
            self.shell.order(OpenPin(ps=PS, evaluation=evaluation))
        except RefusedError:
            return

    @precondition(lambda self: self.shell.joined)
    @rule(evaluation=st.integers(1, 2))
    def unpin(self, evaluation: int) -> None:
        self.shell.order(ClosePin(ps=PS, evaluation=evaluation))

    @rule()
    def die(self) -> None:
        """Kill the process between two commands; the next one restores what is registered."""
        registered = read_chain(self.store, self.broker.register().manifest)[-1][1]
        self.shell = Shell(self.broker, self.store, policy=POLICY)
        self.shell.start()
        (group,) = self.broker.events(PsStarted)[-1].ledgers
        assert group.ledger == registered.groups[0].ledger

    @rule()
    def take_over(self) -> None:
        """Start a successor; whatever the former process does then, it does not write."""
        former = self.shell
        self.die()
        register = self.broker.register()
        try:
            former.order(TakeSnapshot(ps=PS, request=self.requests + 1000, reason="test"))
            former.run()
        except (FencedError, RefusedError):
            pass
        assert self.broker.register() == register

    def teardown(self) -> None:
        if not hasattr(self, "shell"):
            return
        self.shell.advance(10.0)
        self.shell.run()
        register = self.broker.register()
        for uri in (register.manifest, *register.older):
            chain = read_chain(self.store, uri)
            assert restore(self.store, self.shell.core, chain).step == chain[-1][1].step
        self.shell.order(TakeSnapshot(ps=PS, request=self.requests + 1, reason="test"))
        for _ in range(50):  # Faults that are still to come postpone the snapshot, each by a pause.
            self.shell.run()
            self.shell.advance(2.0)
        self.shell.run()
        taken = self.broker.events(SnapshotTaken)[-1]
        assert (taken.request, taken.manifest) == (self.requests + 1, self.broker.register().manifest)
        assert self.broker.register().step == self.shell.core.step


TestController = ControllerMachine.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
