"""Mutations of how the master uses the log: the outbox, replay and core snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.mutations.registry import Protects, mutation, replaced

from elasticdl.master.core.evolve import evolve as _evolve_function
from elasticdl.master.core.fold import Fold
from elasticdl.master.service import Master
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.views import reading


@mutation("no command runs before its decision is acknowledged", protects=Protects.LIVENESS)
def commands_run_after_acknowledgement() -> Iterator[None]:
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

    with replaced(Master, "_commit", commit):
        yield


@mutation("a successor reads the log from where the core snapshot ends", protects=Protects.EXACTLY_ONCE)
def log_continues_where_the_core_snapshot_ends() -> Iterator[None]:
    original: Any = vars(reading)["present_records"]

    def later(log: Any, *, after: int = 0, until: int = 0) -> Any:
        return original(log, after=after + 1 if after else 0, until=until)

    with replaced(reading, "present_records", later):
        yield


@mutation("inputs are folded only when no decision can come before them any more", protects=Protects.EXACTLY_ONCE)
def late_decisions_are_folded_in_their_place() -> Iterator[None]:
    with replaced(Fold, "take", lambda self, record: _evolve_function(self.state, record)):
        yield


@mutation("a successor runs the commands that have no outcome on the log", protects=Protects.LIVENESS)
def successor_runs_what_was_decided() -> Iterator[None]:
    original = Master._recover

    async def recover(self: Any) -> Any:
        put = self._outbox.put
        self._outbox.put = lambda seq, decided: None
        recovered = await original(self)
        self._outbox.put = put
        return recovered

    with replaced(Master, "_recover", recover):
        yield
