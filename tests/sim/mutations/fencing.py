"""Mutations of fencing: only the present master and the present incarnation of a ps may act."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.sim.mutations.registry import Protects, mutation, replaced
from tests.sim.mutations.snapshots import deletions_unnoticed

from elasticdl.master.core import State, identity
from elasticdl.master.service import Master
from elasticdl.ps.controller.registration import Registration
from elasticdl.shared.bus.memory.broker import Entries
from elasticdl.shared.bus.memory.log import Records
from elasticdl.shared.bus.terms import Terms
from elasticdl.shared.messages.events import Envelope
from elasticdl.shared.names import Service


@mutation(
    "an append by a master names the last decision that it knows, and a master that sees a later term exits",
    protects=Protects.EXACTLY_ONCE,
)
def fencing_of_masters() -> Iterator[None]:
    unfenced = replaced(Records, "check_last_fenced", lambda self, after: None)
    with unfenced, replaced(Master, "_check_term", lambda self, event: None):
        yield


@mutation(
    "a ps' register entry names the entry that it replaces, and a ps that was replaced exits",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-former-incarnation-deletes-garbage-late",
)
def fencing_of_ps() -> Iterator[None]:
    unfenced = replaced(Entries, "check_last", lambda self, name, after: None)
    with unfenced, replaced(Registration, "check_owner", lambda self, entry: None), deletions_unnoticed():
        yield


@mutation(
    "a process that has obeyed a master refuses the orders of its predecessors",
    protects=Protects.EXACTLY_ONCE,
    scenario="a-former-master-repeats-an-order",
)
def orders_of_former_terms_are_refused() -> Iterator[None]:
    with replaced(Terms, "check", lambda self, term: None):
        yield


@mutation("a process counts as started only once the process adapter has reported it", protects=Protects.LIVENESS)
def start_waits_for_the_process_adapter() -> Iterator[None]:
    with _standing_of(identity.Sender.NOT_REPORTED, counts_as=identity.Sender.CURRENT):
        yield


@contextmanager
def _standing_of(found: identity.Sender, *, counts_as: identity.Sender) -> Iterator[None]:
    """Records of workers and ps with one standing get another one."""
    original = identity.classify_sender

    def classify_sender(state: State, envelope: Envelope) -> identity.Sender:
        standing = original(state, envelope)
        is_pod = envelope.service in (Service.WORKER, Service.PS) and envelope.name in state.pods
        return counts_as if is_pod and standing is found else standing

    with replaced(identity, "classify_sender", classify_sender):
        yield
