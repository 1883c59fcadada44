"""A folder with pages of objects, within a budget, which several processes share.

    v1/lock, v1/used_bytes, v1/<2 digits>/<digest of the object's name, etag and size>/<number of the page file>

Reading takes no lock. Writing takes that of the folder, so the budget holds for all processes together.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from elasticdl.shared.process.logs import get_logger
from elasticdl.shared.storage.cache.page_file import PAGES_MAX, PageFile
from elasticdl.shared.storage.store import ObjectInfo
from elasticdl.shared.words import size

_log = get_logger()
_VERSION = "v1"
FREE_SHARE_MIN = 0.15
"""Share of the disk that stays free. Kubernetes removes pods from a node whose disk has less than 10% to 15%."""
IDLE_S = 600.0
"""Seconds after which an object that no process has read makes room for others."""
_TOUCH_S = 60.0
"""Seconds between two notes on the disk that an object is in use."""
TOUCHED_MAX = 100_000
"""Objects for which the last note is remembered."""
_FULL_S = 60.0
"""Seconds after which a full cache looks for room again: that takes a walk over all of its files."""


class DiskCache:
    """Pages of objects on disk; safe to share between threads and processes.

    A full cache keeps the objects that are in use, and refuses others: training reads its data in a cycle, and whatever
    is removed for a newer page would be asked for before that one. Objects that no process has read for ten minutes
    make room. Errors of the disk are logged once; from then on nothing is written.

    Args:
        bytes_max: budget of all files together, bytes.
        free_share_min: share of the disk that stays free.
        idle_s: seconds without a read after which an object may be removed.
    """

    def __init__(
        self, folder: Path, bytes_max: int, *, free_share_min: float = FREE_SHARE_MIN, idle_s: float = IDLE_S
    ) -> None:
        self._root = folder / _VERSION
        self._bytes_max = bytes_max
        self._free_share_min = free_share_min
        self._idle_s = idle_s
        self._touched: OrderedDict[Path, float] = OrderedDict()
        """When this process last noted that an object is in use, the oldest note first."""
        self._touched_lock = threading.Lock()
        self._is_full = False
        self._full_until_s = 0.0
        self._is_broken = False
        self._said: set[str] = set()
        self._lock = threading.Lock()

    @property
    def is_full(self) -> bool:
        """Whether the last write was refused: there is no room, or the disk has an error."""
        return self._is_full or self._is_broken

    def read(self, info: ObjectInfo, pages: Sequence[int]) -> dict[int, bytes]:
        """Those of some pages of an object that are there, by number.

        Args:
            info: the object as it is to be read: pages of another etag or size are never returned.
        """
        folder = self._folder(info)
        found: dict[int, bytes] = {}
        try:
            for first, part in _by_file(pages):
                found |= _file(folder, info, first).read(part)
            if found:
                self._touch(folder)
        except OSError as error:
            self._say(f"can't be read: {error.strerror or error}")
        return found

    def write(self, info: ObjectInfo, pages: Mapping[int, bytes]) -> bool:
        """Keep pages of an object, if there is room."""
        with self._lock:
            if self._is_broken or time.monotonic() < self._full_until_s:
                return False
            try:
                return self._write(info, pages)
            except OSError as error:
                self._is_broken = True
                self._say(f"can't be written: {error.strerror or error}")
                return False

    def _write(self, info: ObjectInfo, pages: Mapping[int, bytes]) -> bool:
        folder = self._folder(info)
        with self._locked():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            files = [(_file(folder, info, first), part) for first, part in _by_file(sorted(pages))]
            missing = [(file, {page: pages[page] for page in file.missing(part)}) for file, part in files]
            if not self._has_room(sum(file.needed_bytes(part) for file, part in missing)):
                self._is_full = True
                return False
            for file, part in missing:
                file.write(part)
        self._is_full = False
        self._touch(folder)
        return True

    def _has_room(self, needed: int) -> bool:
        """Reserve bytes; the caller has the lock."""
        used = self._used()
        if used + needed > self._bytes_max:
            used = self._make_room(self._bytes_max - needed)
        if used + needed > self._bytes_max:
            self._full_until_s = time.monotonic() + _FULL_S
            self._say(f"is full ({size(self._bytes_max)}). What it holds is kept, other data is read from storage")
            return False
        disk = shutil.disk_usage(self._root)
        if disk.free - needed < self._free_share_min * disk.total:
            self._full_until_s = time.monotonic() + _FULL_S
            self._say(f"does not grow, because less than {self._free_share_min:.0%} of its disk is free")
            return False
        # Counted before they are written: if the process dies between, the count is too high until room is made.
        self._set_used(used + needed)
        return True

    def _make_room(self, bytes_max: int) -> int:
        """Remove objects that are not in use, the least recently read one first; returns the bytes that remain."""
        now_s = time.time()
        objects = sorted((folder.stat().st_mtime, folder) for folder in self._root.glob("??/*") if folder.is_dir())
        sizes = {folder: sum(file.stat().st_blocks * 512 for file in folder.iterdir()) for _, folder in objects}
        used = sum(sizes.values())
        for read_s, folder in objects:
            if used <= bytes_max or now_s - read_s < self._idle_s:
                break
            if folder not in self._touched:
                shutil.rmtree(folder, ignore_errors=True)
                used -= sizes[folder]
        self._set_used(used)
        return used

    def _folder(self, info: ObjectInfo) -> Path:
        text = f"{info.uri}\n{info.etag}\n{info.size_bytes}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:40]
        return self._root / digest[:2] / digest

    def _touch(self, folder: Path) -> None:
        """Note that an object is in use."""
        now_s = time.monotonic()
        with self._touched_lock:
            if now_s - self._touched.get(folder, -math.inf) < _TOUCH_S:
                return
            self._touched[folder] = now_s
            self._touched.move_to_end(folder)
            # An object that was not read for so long is not in use by this process.
            while self._touched and (
                len(self._touched) > TOUCHED_MAX or now_s - next(iter(self._touched.values())) >= self._idle_s
            ):
                self._touched.popitem(last=False)
        with suppress(FileNotFoundError):
            os.utime(folder)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock of all processes; the system releases it when one dies."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _used(self) -> int:
        try:
            return int((self._root / "used_bytes").read_text())
        except (FileNotFoundError, ValueError):
            return self._bytes_max  # Unknown: the files are counted.

    def _set_used(self, used: int) -> None:
        (self._root / "used_bytes").write_text(str(used))

    def _say(self, what: str) -> None:
        if what not in self._said:
            self._said.add(what)
            _log.warning("the data cache " + what, folder=str(self._root.parent))


def _file(folder: Path, info: ObjectInfo, first: int) -> PageFile:
    return PageFile(folder / str(first // PAGES_MAX), info.size_bytes, first)


def _by_file(pages: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
    """Ascending pages, divided by the file that they are in: number of its first page, and the pages."""
    part: list[int] = []
    for page in pages:
        if part and part[0] // PAGES_MAX != page // PAGES_MAX:
            yield part[0] // PAGES_MAX * PAGES_MAX, part
            part = []
        part.append(page)
    if part:
        yield part[0] // PAGES_MAX * PAGES_MAX, part
