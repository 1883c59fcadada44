"""Reads of ledgers from object storage, in threads: a storage that hangs must not stop the master."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from elasticdl.shared.errors import TransientError
from elasticdl.shared.messages.events import GroupLedger
from elasticdl.shared.model.manifests import read_manifest
from elasticdl.shared.storage import open_store

LedgerReader = Callable[[str], tuple[GroupLedger, ...]]
"""(URI of a snapshot's manifest) -> the ledgers in it; blocks."""

READ_S_MAX = 60.0
"""Seconds after which reading a manifest counts as failed; the core orders it again."""
_THREADS_MAX = 256
"""As many as a job may have ps, each of which has one manifest to read."""


class LedgerReads:
    """Reads manifests, each in one thread at most: ordered again, a read that hangs is waited for again.

    A thread can't be ended. At its end the master exits without waiting for those that hang.
    """

    def __init__(self, read: LedgerReader) -> None:
        self._read = read
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="ledgers")
        self._running: dict[str, asyncio.Future[tuple[GroupLedger, ...]]] = {}

    async def read(self, manifest: str) -> tuple[GroupLedger, ...]:
        """The ledgers in a snapshot.

        Raises:
            TransientError: the store is unreachable, or has not answered for ``READ_S_MAX``.
            PermanentError: the manifest is missing or damaged.
        """
        running = self._running.get(manifest)
        if running is None:
            running = asyncio.get_running_loop().run_in_executor(self._threads, self._read, manifest)
            self._running[manifest] = running
            running.add_done_callback(lambda done: self._ended(manifest, done))
        try:
            return await asyncio.wait_for(asyncio.shield(running), READ_S_MAX)
        except TimeoutError as error:
            raise TransientError(f"{manifest} could not be read within {READ_S_MAX:g} s") from error

    def _ended(self, manifest: str, done: asyncio.Future[tuple[GroupLedger, ...]]) -> None:
        del self._running[manifest]
        if not done.cancelled():
            done.exception()  # Otherwise asyncio warns if nothing waits for it any more.


def read_ledgers(manifest: str) -> tuple[GroupLedger, ...]:
    """Read the ledgers of every group in a snapshot, for the audit."""
    return read_manifest(open_store(manifest), manifest).ledgers
