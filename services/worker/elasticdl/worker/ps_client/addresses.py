"""Follows the registers: the address of each ps, and the placement of partitions on ps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from elasticdl.shared.bus import KeyValue, subjects
from elasticdl.shared.bus.loop_thread import LoopThread
from elasticdl.shared.errors import UnreadableError
from elasticdl.shared.messages.registers import decode_register
from elasticdl.shared.model.placement import Placement, decode_placement
from elasticdl.shared.names import PodName
from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.process.repeated_lines import RepeatedLines
from elasticdl.worker.ps_client.connection import PsAddress, PsDirectory

_lines = RepeatedLines(get_logger())


class Addresses:
    """Follows the registers from its construction on.

    Args:
        failed: takes the error after which the registers are followed no longer.
    """

    def __init__(
        self, register: KeyValue, loop: LoopThread, placement: Placement, failed: Callable[[BaseException], None]
    ) -> None:
        self._changed = threading.Condition()
        self._known: Mapping[PodName, PsAddress] = MappingProxyType({})
        self._placement = placement
        self._read: set[str] = set()
        """Names whose value could be read once."""
        self._unreadable: UnreadableError | None = None
        """About the first value under some name: there is no former one to go on with."""
        loop.spawn_endless(self._follow(register), failed)

    @property
    def directory(self) -> PsDirectory:
        """What the ps client asks."""
        return PsDirectory(placement=self.placement, resolve=self.resolve)

    @property
    def directory_of_replica(self) -> PsDirectory:
        """The same for the client of the replica that a ring has beside ps with tables."""
        return PsDirectory(placement=lambda: self._placement.of_replica, resolve=self.resolve)

    def resolve(self) -> Mapping[PodName, PsAddress]:
        """The address of every ps that has registered."""
        return self._known

    def placement(self) -> Placement:
        """The latest known version of the placement."""
        return self._placement

    def wait_known(self, names: Collection[PodName], *, timeout_s: float) -> bool:
        """Wait until all of these have registered; returns whether they have.

        Raises:
            UnreadableError: a register can't be read, and its former value is not known.
        """
        with self._changed:
            known = self._changed.wait_for(lambda: self._unreadable or self._known.keys() >= set(names), timeout_s)
        if self._unreadable:
            raise self._unreadable
        return bool(known)

    async def _follow(self, register: KeyValue) -> None:
        async for name, entry in register.watch():
            if name == subjects.RING:
                continue
            try:
                if name == subjects.PLACEMENT:
                    self._placement = decode_placement(entry.value)
                    self._read.add(name)
                    continue
                owner = decode_register(entry.value)
                self._read.add(name)
            except UnreadableError as error:
                _lines.warning("a register is ignored", name=name, reason=str(error))
                if name not in self._read:
                    with self._changed:
                        self._unreadable = error
                        self._changed.notify_all()
                continue
            if not owner.address:
                continue  # A resumed job: no ps has claimed the name yet.
            place = PsAddress(address=owner.address, incarnation=owner.incarnation)
            with self._changed:
                self._known = MappingProxyType({**self._known, PodName(name): place})
                self._changed.notify_all()
