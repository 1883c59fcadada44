"""A ps' register, by which it holds its name and says what restores it. Blocks until acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.bus.ports import Bus
from elasticdl.shared.bus.subjects import PLACEMENT
from elasticdl.shared.errors import FencedError
from elasticdl.shared.messages.registers import PsRegister, decode_register, encode_register
from elasticdl.shared.model.placement import Placement, decode_placement
from elasticdl.shared.names import Incarnation, PodName


class Registration:
    """This life's hold on the ps' name. Every write names the one before, so a successor's claim fences us."""

    def __init__(self, bus: Bus, loop: LoopThread, ps: PodName) -> None:
        self._bus = bus
        self._loop = loop
        self._ps = ps
        self._held: PsRegister | None = None
        self._seq = 0

    @property
    def seq(self) -> int:
        """Number of this life's last write; a successor's first one is higher."""
        return self._seq

    def claim(self, address: str, incarnation: Incarnation) -> PsRegister:
        """Take the name over, with the last snapshot that its former owner registered.

        Raises:
            FencedError: another life claims it at the same time.
            TransientError: the broker stayed away longer than its settings allow.
        """
        entry = self._loop.call(self._bus.registers.read(self._ps))
        register = PsRegister(address=address, incarnation=incarnation)
        if entry is not None:
            former = decode_register(entry.value)
            register = replace(register, manifest=former.manifest, step=former.step, older=former.older)
        return self._write(register, after=entry.seq if entry else 0)

    def placement(self) -> Placement | None:
        """The table as it is published; None: it is still the one that the job began with.

        Raises:
            TransientError: the broker stayed away longer than its settings allow.
        """
        entry = self._loop.call(self._bus.registers.read(PLACEMENT))
        return decode_placement(entry.value) if entry else None

    def snapshot_of(self, ps: PodName) -> str:
        """URI of the snapshot that another ps registered, or empty.

        Raises:
            TransientError: the broker stayed away longer than its settings allow.
        """
        entry = self._loop.call(self._bus.registers.read(ps))
        return decode_register(entry.value).manifest if entry else ""

    async def until_lost(self, adopt: Callable[[Placement], object]) -> None:
        """Wait until another life takes the name over; belongs on the bus' loop, after ``claim``.

        A life that has nothing to publish would never learn it otherwise, while workers look for the other one.

        Args:
            adopt: is told of every version of the placement that comes meanwhile.

        Raises:
            FencedError: it has happened.
        """
        async for name, entry in self._bus.registers.watch():
            if name == PLACEMENT:
                adopt(decode_placement(entry.value))
            elif name == self._ps and self._held is not None and entry.seq > self._seq:
                owner = decode_register(entry.value).incarnation
                if owner != self._held.incarnation:
                    raise FencedError(f"{self._ps} was taken over by {owner}")

    def publish(self, manifest: str, step: int, older: tuple[str, ...]) -> None:
        """KeyValue a complete snapshot: from now on a successor restores this one, or one of the ``older``.

        Raises:
            FencedError: another life has taken the name over; this one must not write anything more.
            TransientError: the broker stayed away longer than its settings allow.
        """
        self._write(replace(self._register(), manifest=manifest, step=step, older=older), after=self._seq)

    def confirm(self) -> None:
        """Make sure that the name was ours until now, by writing the register once more as it is.

        Raises:
            FencedError: another life has taken the name over; this one must not write anything more.
            TransientError: the broker stayed away longer than its settings allow.
        """
        self._write(self._register(), after=self._seq)

    def _register(self) -> PsRegister:
        if self._held is None:
            raise ValueError("the name is not claimed yet")
        return self._held

    def _write(self, register: PsRegister, *, after: int) -> PsRegister:
        self._seq = self._loop.call(self._bus.registers.write(self._ps, encode_register(register), after=after))
        self._held = register
        return register
