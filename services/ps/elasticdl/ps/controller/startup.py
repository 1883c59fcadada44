"""The order in which a ps starts; recovery depends on it.

claim the name -> read the placement -> restore what the register names -> listen -> PsStarted acknowledged -> serve
no snapshot yet: ... -> read the weights of the job to start from, if any -> wait for a worker's initial weights ->
snapshot 0 registered -> serve
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.ps.controller import commands
from elasticdl.ps.controller.registration import Registration
from elasticdl.ps.controller.settings import ControllerSettings
from elasticdl.ps.controller.snapshots import Snapshots
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.snapshots.recovery import NothingLeftError, Recovered
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.messages.events import GroupLedger, PsStarted
from elasticdl.shared.messages.registers import PsRegister
from elasticdl.shared.model.manifests import DamagedError, damage
from elasticdl.shared.model.placement import decode_placement
from elasticdl.shared.process.procedures import Procedure


class Startup:
    """Starts one incarnation of a ps."""

    def __init__(
        self, core: PsCore, settings: ControllerSettings, registration: Registration, snapshots: Snapshots
    ) -> None:
        self._core = core
        self._ps = settings.ps
        self._address = settings.address
        self._initial = settings.initial
        self._registration = registration
        self._snapshots = snapshots

    def run(self) -> Procedure[None]:
        """Claim, restore, listen, announce, serve.

        Raises:
            FencedError: another incarnation has taken the name over.
            PermanentError: every kept snapshot is damaged, or the log is full.
            TransientError: broker or store stayed away for too long.
            UserError: the snapshot belongs to another plan.
        """
        register = yield from self._registration.claim()
        entry = yield commands.ReadKey(name=PLACEMENT)
        if entry is not None:
            yield commands.AdoptPlacement(placement=decode_placement(entry.value))
        restored = ""
        ledgers: tuple[GroupLedger, ...] = ()
        if self._core.has_model:
            ledgers = yield from self._take_over(register)
        elif register.manifest:
            restored, ledgers = yield from self._restore(register)
        elif self._initial and self._core.owned:
            yield commands.LoadInitialModel(initial=self._initial)
        yield commands.Listen()
        yield commands.PublishEvent(
            event=PsStarted(
                address=self._address, ledgers=ledgers, restored_from=restored, claim=self._registration.seq
            )
        )
        if restored or ledgers or not self._core.owned:
            yield commands.StartServing()
        if not self._core.owned:
            self._snapshots.initialised = True  # The groups that come here are initialised already.
        self._snapshots.plan_next()
        yield commands.JoinJob()
        facts = {"address": self._address, "restored_from": restored, "step": self._core.step}
        yield commands.Log(level="info", message="ps started", facts=facts)

    def _restore(self, register: PsRegister) -> Procedure[tuple[str, tuple[GroupLedger, ...]]]:
        """Install what the register names; returns the manifest URI that it was restored from, and its ledgers.

        What this incarnation keeps is registered before it is announced on the log. If the newest snapshot is damaged,
        that is its replacement: an older snapshot, or a new one of what was gathered from several.
        """
        try:
            recovered: Recovered = yield commands.RecoverShard(register=register)
        except NothingLeftError as error:
            yield from self._announce_damages(error.damages, "")
            raise
        if recovered.shard is None:
            yield from self._announce_damages(recovered.damages, "")
            return "", ()
        ledgers = recovered.shard.ledgers
        self._snapshots.adopt(recovered.kept)
        if not recovered.uri:
            yield from self._snapshots.write(flush=False)
        uri = self._snapshots.history.newest[0]
        yield from self._announce_damages(recovered.damages, uri)
        if recovered.uri:
            manifest = recovered.kept[-1][1]
            older = self._snapshots.history.older_than(uri, manifest)
            # A register that was rebuilt from storage names snapshots that retention deletes.
            if (uri, *older) != (register.manifest, *register.older):
                yield from self._registration.publish(uri, manifest.step, older)
        return uri, ledgers

    def _take_over(self, register: PsRegister) -> Procedure[tuple[GroupLedger, ...]]:
        """Continue with a model that is here already; the snapshots of its former owner are this one's now."""
        if register.manifest:
            kept = yield commands.ReadHistory(register=register)
            self._snapshots.adopt(kept)
        if not self._snapshots.history:
            yield from self._snapshots.write(flush=False)
            self._snapshots.initialised = True
        return self._core.ledgers

    def _announce_damages(self, damages: Iterable[DamagedError], replacement: str) -> Procedure[None]:
        for error in damages:
            facts = {"reason": str(error), "replacement": replacement}
            yield commands.Log(level="error", message="a snapshot is damaged", facts=facts)
            yield commands.PublishEvent(event=damage(self._ps, error, replacement))
