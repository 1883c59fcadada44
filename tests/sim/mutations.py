"""Mutations: each removes one rule that guards exactly-once, and the simulation has to find the damage.

A simulator that can't find a planted bug proves nothing; ``planting.py`` looks for them. This is the only place where
functions of the product are replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.sim.broker import Log, Registers
from tests.sim.ps import PsProcess
from tests.sim.worker import WorkerProcess

from elasticdl.master.core import Fold
from elasticdl.master.core import evolve as _evolve_function
from elasticdl.master.core.training import bookkeeping as training
from elasticdl.master.service import Master
from elasticdl.master.snapshots import recovery
from elasticdl.ps.engine.accumulator import Accumulator
from elasticdl.ps.engine.cuts import RowCut
from elasticdl.ps.engine.dense import DenseCut, DenseStore
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import Group, GroupCut
from elasticdl.ps.shard.model_shard import ModelShard
from elasticdl.ps.shard.shard_cut import ShardCut
from elasticdl.ps.snapshots import history
from elasticdl.ps.snapshots import reader as snapshot_reader
from elasticdl.shared.bus.terms import Terms
from elasticdl.shared.job.ledger import Ledger, Verdict
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.worker.ps_client import rules
from elasticdl.worker.training.pipeline import Pipeline

evolve = sys.modules["elasticdl.master.core.evolve"]
Patch = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule removed.

    Attributes:
        name: short, for the table.
        rule: what is true without the mutation.
        patch: removes it.
    """

    name: str
    rule: str
    patch: Patch


MUTATIONS: list[Mutation] = []


def _mutation(rule: str) -> Callable[[Callable[[], Iterator[None]]], Patch]:
    """KeyValue a patch under its function's name."""

    def register(function: Callable[[], Iterator[None]]) -> Patch:
        patch = contextmanager(function)
        MUTATIONS.append(Mutation(name=function.__name__.replace("_", " "), rule=rule, patch=patch))
        return patch

    return register


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


# --- fencing ------------------------------------------------------------------------------------------------------


@_mutation("a master's append names the last decision that it knows, and whoever sees a later term ends")
def fencing_of_masters() -> Iterator[None]:
    unfenced = _replaced(Log, "check_expected", lambda self, after: None)
    with unfenced, _replaced(Master, "_heed_term", lambda self, event: None):
        yield


@_mutation("a ps' register entry names the entry that it replaces, and whoever is replaced ends")
def fencing_of_ps() -> Iterator[None]:
    async def watch(self: Any) -> None:
        return

    unfenced = _replaced(Registers, "check_expected", lambda self, name, after, write_id: None)
    with unfenced, _replaced(PsProcess, "_watch_register", watch):
        yield


@_mutation("whoever has obeyed a master refuses the orders of its predecessors")
def orders_of_former_terms_are_refused() -> Iterator[None]:
    with _replaced(Terms, "admit", lambda self, term: None):
        yield


@_mutation("a process is believed to have started only once its keeper knows of it")
def start_before_its_keeper_says_so() -> Iterator[None]:
    with _replaced(evolve, "_is_early", lambda pod, envelope: False):
        yield


# --- the master's bookkeeping -------------------------------------------------------------------------------------


@_mutation("a task is credited to a ps only under its present incarnation")
def credit_by_incarnation() -> Iterator[None]:
    original = training.Training.note_finished

    def note_finished(self: Any, event: Any, time_s: float, placement_version: int) -> bool:
        present = {str(ps): str(credit.incarnation) for ps, credit in self.credits.items() if credit.incarnation}
        return original(self, replace(event, credits=present), time_s, placement_version)

    with _replaced(training.Training, "note_finished", note_finished):
        yield


@_mutation("PsStarted replaces what was credited to the ps")
def ps_started_replaces_credit() -> Iterator[None]:
    original = training.Training.note_ps

    def note_ps(self: Any, ps: Any, incarnation: Any, finished: Any) -> None:
        kept = finished.copy()
        if ps in self.credits:
            for start, end in self.credits[ps].finished.ranges():
                kept.add_range(start, end)
        original(self, ps, incarnation, kept)

    with _replaced(training.Training, "note_ps", note_ps):
        yield


@_mutation("a task that was finished under a former life is dispatched anew")
def dispatch_anew_what_lost_its_credit() -> Iterator[None]:
    original = training.Training.note_finished

    def note_finished(self: Any, event: Any, time_s: float, placement_version: int) -> bool:
        lacking = set(self.lacking)
        outstanding = set(self.outstanding)
        completed = original(self, event, time_s, placement_version)
        if not completed:
            self.lacking, self.outstanding = lacking, outstanding
        return completed

    with _replaced(training.Training, "note_finished", note_finished):
        yield


@_mutation("no command runs before its decision is acknowledged")
def outbox_after_acknowledgement() -> Iterator[None]:
    async def commit(self: Any, decision: Any, now_s: float) -> None:
        decided = Decided(
            term=self.state.term,
            after_seq=self.state.seq,
            now_s=now_s,
            commands=decision.commands,
            reasons=decision.reasons,
        )
        self._outbox.put(self._read_seq + 1, decided)
        envelope = self._envelopes.envelope(decided)
        seq = await self._append_envelope(envelope)
        _evolve_function(self.state, LogRecord(seq=seq, envelope=envelope))

    with _replaced(Master, "_commit", commit):
        yield


@_mutation("the log is read on from where a core snapshot ends")
def log_goes_on_where_the_core_snapshot_ends() -> Iterator[None]:
    original: Any = vars(recovery)["present_records"]

    def later(log: Any, *, after: int, until: int) -> Any:
        return original(log, after=after + 1 if after else 0, until=until)

    with _replaced(recovery, "present_records", later):
        yield


@_mutation("inputs are folded only when no decision can come before them any more")
def late_decisions_are_folded_in_their_place() -> Iterator[None]:
    with _replaced(Fold, "take", lambda self, record: _evolve_function(self.state, record)):
        yield


@_mutation("a successor runs the commands that have no outcome on the log")
def successor_runs_what_was_decided() -> Iterator[None]:
    original = Master._recover

    async def recover(self: Any) -> Any:
        put = self._outbox.put
        self._outbox.put = lambda seq, decided: None
        recovered = await original(self)
        self._outbox.put = put
        return recovered

    with _replaced(Master, "_recover", recover):
        yield


# --- the worker ---------------------------------------------------------------------------------------------------


@_mutation("a worker goes on at the least next batch of all groups")
def minimum_over_groups() -> Iterator[None]:
    outcome_of, standing_of = rules.outcome_of, rules.standing_of

    def outcome(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            outcome_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    def standing(replies: Any, lives: Any, version: int) -> Any:
        return replace(
            standing_of(replies, lives, version), next_batch=max(reply.next_batch for reply in replies.values())
        )

    with _replaced(rules, "outcome_of", outcome), _replaced(rules, "standing_of", standing):
        yield


@_mutation("the answer to a push, not the push itself, says where a task stands")
def answers_say_where_a_task_stands() -> Iterator[None]:
    original = Pipeline.answered

    def answered(self: Any, ticket: Any, next_batch: int) -> Any:
        return original(self, ticket, ticket.batch + 1)

    with _replaced(Pipeline, "answered", answered):
        yield


@_mutation("a task is acknowledged after its TaskFinished is stored")
def event_before_acknowledgement() -> Iterator[None]:
    original = WorkerProcess._finish

    async def finish(self: Any, deliveries: Any, **facts: Any) -> None:
        for delivery in deliveries:
            await delivery.delivery.ack()
        await original(self, deliveries, **facts)

    with _replaced(WorkerProcess, "_finish", finish):
        yield


# --- the ps' ledger -----------------------------------------------------------------------------------------------


@_mutation("a batch that was absorbed before changes nothing")
def duplicates_apply_nothing() -> Iterator[None]:
    def judge(self: Any, task: Any, batch: int, batches: int) -> Verdict:
        return Verdict.APPLIED if batch <= self.next_batch(task, batches) else Verdict.GAP

    with _replaced(Ledger, "judge", judge):
        yield


@_mutation("a batch that comes before its predecessor is refused")
def gaps_are_refused() -> Iterator[None]:
    def judge(self: Any, task: Any, batch: int, batches: int) -> Verdict:
        return Verdict.APPLIED if batch >= self.next_batch(task, batches) else Verdict.DUPLICATE

    with _replaced(Ledger, "judge", judge):
        yield


@_mutation("a push is validated whole before anything changes")
def whole_push_validation() -> Iterator[None]:
    original = Group.apply

    def check(self: Any, push: Any) -> None:
        self.dense.check(push.dense) if not push.empty else None

    def apply(self: Any, push: Any) -> None:
        sound = tuple(table for table in push.tables if table.gradients.sum() == table.gradients.sum())
        original(self, replace(push, tables=sound))

    with _replaced(Group, "check", check), _replaced(Group, "apply", apply):
        yield


@_mutation("nothing is served before the start is on record")
def not_ready_before_the_record() -> Iterator[None]:
    original = PsCore._serving

    def serving(self: Any, placement_version: int) -> ModelShard:
        ready, self._ready = self._ready, True
        try:
            return original(self, placement_version)
        finally:
            self._ready = ready

    with _replaced(PsCore, "_serving", serving):
        yield


# --- snapshots ----------------------------------------------------------------------------------------------------


@_mutation("a cut copies the dense weights")
def dense_weights_in_the_cut() -> Iterator[None]:
    def cut(self: Any) -> DenseCut:
        return DenseCut(state=self._state, fixed=self._fixed)

    original = Group.cut

    def group_cut(self: Any, **facts: Any) -> GroupCut:
        made = original(self, **facts)
        return replace(made, dense=cut(self.dense))

    with _replaced(DenseStore, "cut", cut), _replaced(Group, "cut", group_cut):
        yield


@_mutation("rows that change after a cut are saved aside for it")
def copy_on_write_of_rows() -> Iterator[None]:
    with _replaced(RowCut, "save_aside", lambda self, slots: None):
        yield


@_mutation("a cut holds the half-filled accumulator")
def accumulator_in_the_cut() -> Iterator[None]:
    original = Accumulator.state

    def state(self: Any) -> Any:
        return replace(original(self), batches=0)

    original_take = Accumulator.take

    def take(self: Any) -> Any:
        with _replaced(Accumulator, "state", original):
            return original_take(self)

    with _replaced(Accumulator, "state", state), _replaced(Accumulator, "take", take):
        yield


@_mutation("the ledger is restored together with the weights")
def ledger_restored_with_the_weights() -> Iterator[None]:
    original = snapshot_reader.read_groups

    def read_groups(*arguments: Any) -> Any:
        return [replace(cut, ledger=Ledger().record()) for cut in original(*arguments)]

    with _replaced(snapshot_reader, "read_groups", read_groups):
        yield


@_mutation("rows count as saved only when their snapshot is registered")
def dirty_until_registered() -> Iterator[None]:
    original = ShardCut.close

    def close(self: Any, *, finished: bool = False) -> None:
        original(self, finished=True)

    with _replaced(ShardCut, "close", close):
        yield


@_mutation("a ps deletes what it takes for garbage only if the name is still its own")
def name_confirmed_before_tidying() -> Iterator[None]:
    async def confirm(self: Any) -> None:
        return

    with _replaced(PsProcess, "_confirm", confirm):
        yield


@_mutation("what a kept snapshot builds on is kept")
def whole_chains_are_kept() -> Iterator[None]:
    with _replaced(history, "_kept", lambda complete, chains_kept: complete[-chains_kept:]):
        yield
