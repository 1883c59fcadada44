"""The ps' register: it proves which incarnation owns the name, and names the snapshot that the next one restores."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.ps.controller.commands import ClaimName, ConfirmName, Log, ReadKey, RegisterSnapshot, WriteRegister
from elasticdl.shared.bus.ports import KeyValueEntry
from elasticdl.shared.errors import FencedError, InvariantError, UnreadableError
from elasticdl.shared.messages.registers import PsRegister, decode_register
from elasticdl.shared.names import Incarnation, PodName
from elasticdl.shared.process.procedures import Procedure


class Registration:
    """This incarnation's claim of the name. Every write names the entry that it replaces, so a successor fences it.

    All procedures raise FencedError when another incarnation has taken the name over, and TransientError when the
    broker is unreachable for longer than its settings allow.
    """

    def __init__(self, ps: PodName, incarnation: Incarnation, address: str) -> None:
        self._ps = ps
        self._own = PsRegister(address=address, incarnation=incarnation)
        self.register: PsRegister | None = None
        """The register as this incarnation wrote it last; None: the name is not claimed yet."""
        self.seq = 0

    def claim(self) -> Procedure[PsRegister]:
        """Take the name over, together with the snapshots that the former owner registered."""
        entry: KeyValueEntry | None = yield ReadKey(name=self._ps)
        register = self._own
        if entry is not None:
            former = decode_register(entry.value)
            register = replace(register, manifest=former.manifest, step=former.step, older=former.older)
        yield from self._write(ClaimName(register=register, after=entry.seq if entry else 0))
        return register

    def publish(self, manifest: str, step: int, older: tuple[str, ...]) -> Procedure[None]:
        """Register a complete snapshot: from now on the next incarnation restores this one, or one of the ``older``."""
        register = replace(self._claimed(), manifest=manifest, step=step, older=older)
        yield from self._write(RegisterSnapshot(register=register, after=self.seq))

    def confirm(self) -> Procedure[None]:
        """Make sure that this incarnation still owns the name."""
        yield from self._write(ConfirmName(register=self._claimed(), after=self.seq))

    def check_owner(self, entry: KeyValueEntry) -> Procedure[None]:
        """Look at a new entry under this ps' name. One that can't be read is replaced: no successor writes such.

        An incarnation that has nothing to write learns of its successor only here.

        Raises:
            FencedError: another incarnation wrote it.
        """
        latest: KeyValueEntry | None = entry
        while self.register is not None and latest is not None and latest.seq > self.seq:
            owner = _owner_of(latest)
            if owner:
                if owner != self._own.incarnation:
                    raise FencedError(f"{self._ps} was taken over by {owner}")
                return
            facts = {"register": self._ps}
            yield Log(level="warning", message="a register that can't be read is written again", facts=facts)
            try:
                self.seq = yield ConfirmName(register=self._claimed(), after=latest.seq)
            except FencedError:  # Another write of this incarnation was faster, or there is a successor.
                latest = yield ReadKey(name=self._ps)

    def _claimed(self) -> PsRegister:
        if self.register is None:
            raise InvariantError(f"{self._ps} writes its register before it has claimed the name")
        return self.register

    def _write(self, command: WriteRegister) -> Procedure[None]:
        """Write the register. An earlier write of this incarnation may have been stored although it seemed to fail.

        The write or its acknowledgement was late. Then the entry names this incarnation.
        """
        while True:
            try:
                self.seq = yield command
            except FencedError:
                entry: KeyValueEntry | None = yield ReadKey(name=self._ps)
                if entry is None or _owner_of(entry) not in ("", self._own.incarnation):
                    raise
                if entry.seq == command.after:
                    raise
                command = replace(command, after=entry.seq)
            else:
                self.register = command.register
                return


def _owner_of(entry: KeyValueEntry) -> str:
    """The incarnation that wrote an entry; empty if the entry can't be read."""
    try:
        return decode_register(entry.value).incarnation
    except UnreadableError:
        return ""
