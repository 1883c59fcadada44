"""The cache in front of a real S3 server: what it serves, what it costs, and what happens to a damaged or full disk."""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.servers.s3 import S3Server

from elasticdl.shared.storage import MemoryStore, ObjectChangedError, ObjectInfo, ObjectStore, open_store
from elasticdl.shared.storage.cache import CachedStore, CacheUsage, DiskCache, StoredRange, disk_cache
from elasticdl.shared.storage.cache.page_file import PAGE_BYTES

DATA = random.Random(1).randbytes(5 * PAGE_BYTES + 1234)
BUDGET = 64 << 20


def cached(store: ObjectStore, folder: Path, budget: int = BUDGET) -> tuple[CachedStore, CacheUsage]:
    """A store as another process would open it, with empty memory."""
    usage = CacheUsage()
    return CachedStore(store, DiskCache(folder, budget, free_share_min=0.0), usage), usage


def wait_until_read_ahead(store: CachedStore) -> None:
    """Wait until the threads that read ahead have nothing to do, and the pages that they requested are there."""
    threads = store._ahead._max_workers
    idle = threading.Barrier(threads + 1)
    for _ in range(threads):
        store._ahead.submit(idle.wait)
    idle.wait(timeout=60)
    futures.wait(list(store._coming.values()), timeout=60)


def size_on_disk(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*/*/*") if file.is_file())


@pytest.fixture
def s3(s3_server: S3Server, bucket: str) -> tuple[ObjectStore, str]:
    store, uri = open_store("s3://", s3_server.settings()), f"s3://{bucket}/{secrets.token_hex(6)}/data"
    store.write(uri, DATA)
    return store, uri


def test_what_one_process_has_read_costs_others_no_request_for_data(
    s3: tuple[ObjectStore, str], tmp_path: Path
) -> None:
    store, uri = s3
    first, usage = cached(store, tmp_path)
    assert first.read(uri, 100, 3 * PAGE_BYTES) == DATA[100 : 100 + 3 * PAGE_BYTES]
    assert (usage.requests, usage.fetched_bytes, usage.cached_bytes) == (2, 4 * PAGE_BYTES, 0)
    assert first.read(uri) == DATA
    assert (usage.requests, usage.fetched_bytes) == (3, len(DATA)), "only the missing end is requested"
    second, usage = cached(store, tmp_path)
    with second.open(uri, 77) as stream:
        assert stream.read() == DATA[77:]
    assert (usage.requests, usage.fetched_bytes) == (1, 0), "only the etag is asked for"
    assert usage.cached_bytes >= len(DATA) - PAGE_BYTES


def test_ranges_are_read_ahead_at_the_same_time(s3: tuple[ObjectStore, str], tmp_path: Path) -> None:
    store, uri = s3
    ahead, usage = cached(store, tmp_path)
    places = [0, 2 * PAGE_BYTES + 7, 4 * PAGE_BYTES]
    ahead.prefetch([StoredRange(uri, place, 100) for place in places] + [StoredRange(uri + "none", 0, 1)])
    for place in places:
        assert ahead.read(uri, place, 100) == DATA[place : place + 100]
    assert usage.fetched_bytes == 3 * PAGE_BYTES, "no page is requested twice"


@pytest.mark.parametrize("has_disk", [False, True])
def test_without_room_on_disk_no_more_is_read_ahead_than_the_memory_holds(tmp_path: Path, has_disk: bool) -> None:
    store, pages, memory_pages = MemoryStore(), 64, 16
    data = random.Random(2).randbytes(pages * PAGE_BYTES)
    store.write("memory://data", data)
    store.write("memory://other", data[:PAGE_BYTES])
    disk = DiskCache(tmp_path, 0, free_share_min=0.0) if has_disk else None
    usage = CacheUsage()
    reader = CachedStore(store, disk, usage, memory_bytes_max=memory_pages * PAGE_BYTES)
    assert reader.read("memory://other", 0, 9) == data[:9]  # From now on the disk is known to be full.
    before = usage.fetched_bytes
    for first in (0, pages // 2):  # Pages that were read make room for those that are read ahead next.
        part = range(first, first + pages // 2)
        reader.prefetch([StoredRange("memory://data", page * PAGE_BYTES, PAGE_BYTES) for page in part])
        wait_until_read_ahead(reader)
        assert usage.fetched_bytes - before == (first + 12) * PAGE_BYTES, "three quarters of the memory"
        for page in part:
            start = page * PAGE_BYTES
            assert reader.read("memory://data", start, PAGE_BYTES) == data[start : start + PAGE_BYTES]
    assert usage.fetched_bytes - before == len(data), "each page is requested once"


def test_the_disk_keeps_what_the_memory_has_no_room_for(tmp_path: Path) -> None:
    store, usage = MemoryStore(), CacheUsage()
    store.write("memory://data", DATA)
    disk = DiskCache(tmp_path, BUDGET, free_share_min=0.0)
    reader = CachedStore(store, disk, usage, memory_bytes_max=2 * PAGE_BYTES)
    reader.prefetch([StoredRange("memory://data", 0, len(DATA))])
    wait_until_read_ahead(reader)
    assert usage.fetched_bytes == len(DATA)


def test_what_is_remembered_of_objects_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "TOUCHED_MAX", 3)
    store, usage = MemoryStore(), CacheUsage()
    disk = DiskCache(tmp_path, BUDGET, free_share_min=0.0)
    reader = CachedStore(store, disk, usage, infos_max=2)
    for number in range(8):
        store.write(f"memory://{number}", DATA[:100])
        reader.read(f"memory://{number}", 0, 9)
    assert (len(reader._infos), len(disk._touched)) == (2, 3)
    before = usage.requests
    reader.info("memory://7")
    assert usage.requests == before, "the newest ones are remembered"


def test_an_object_that_was_not_read_for_long_is_not_in_use(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path, BUDGET, free_share_min=0.0, idle_s=0.0)
    assert disk.write(ObjectInfo(uri="memory://a", size_bytes=9, etag="a"), {0: DATA[:9]})
    assert not disk._touched


def test_a_replaced_object_is_never_served_from_the_cache(s3: tuple[ObjectStore, str], tmp_path: Path) -> None:
    store, uri = s3
    reader, _ = cached(store, tmp_path)
    old = reader.info(uri)
    assert reader.read(uri, 0, 10, etag=old.etag) == DATA[:10]
    store.write(uri, DATA[::-1])
    with pytest.raises(ObjectChangedError):
        reader.read(uri, 4 * PAGE_BYTES, 10, etag=old.etag)  # A page that is not in the cache.
    assert reader.info(uri).etag != old.etag, "after the error the etag is asked for"
    assert reader.read(uri, 0, 10) == DATA[::-1][:10]
    assert cached(store, tmp_path)[0].read(uri, 0, 10) == DATA[::-1][:10]


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ranges=st.lists(st.tuples(st.integers(0, len(DATA) + 9), st.none() | st.integers(0, len(DATA))), min_size=1),
    budget=st.sampled_from([BUDGET, 3 * PAGE_BYTES, 0]),
    memory_pages=st.sampled_from([1, 2, 100]),
)
def test_any_ranges_with_any_budget(
    tmp_path_factory: pytest.TempPathFactory,
    ranges: list[tuple[int, int | None]],
    budget: int,
    memory_pages: int,
) -> None:
    store, folder = MemoryStore(), tmp_path_factory.mktemp("cache")
    store.write("memory://data", DATA)
    disk = DiskCache(folder, budget, free_share_min=0.0)
    reader = CachedStore(store, disk, CacheUsage(), memory_bytes_max=memory_pages * PAGE_BYTES)
    for start, length in ranges:
        if length:
            reader.prefetch([StoredRange("memory://data", start, length)])
        end = None if length is None else start + length
        assert reader.read("memory://data", start, length) == DATA[start:end]
    assert size_on_disk(folder) <= budget


@pytest.mark.parametrize("damage", ["flipped", "truncated", "zeros", "empty"])
def test_a_damaged_page_is_requested_again(tmp_path: Path, damage: str) -> None:
    store = MemoryStore()
    store.write("memory://data", DATA)
    assert cached(store, tmp_path)[0].read("memory://data", 0, len(DATA)) == DATA
    (file,) = tmp_path.glob("v1/??/*/0")
    content = bytearray(file.read_bytes())
    match damage:
        case "flipped":
            content[2 * PAGE_BYTES] ^= 1
        case "truncated":
            del content[-2000:]
        case "zeros":  # As after a power failure: the table is on disk, a page is not.
            content[PAGE_BYTES : 2 * PAGE_BYTES] = bytes(PAGE_BYTES)
        case _:
            content.clear()
    file.write_bytes(content)
    reader, usage = cached(store, tmp_path)
    assert reader.read("memory://data", 0, len(DATA)) == DATA
    assert 0 < usage.fetched_bytes <= len(DATA)


def test_a_full_cache_keeps_what_is_in_use_and_drops_what_is_not(tmp_path: Path) -> None:
    store, page = MemoryStore(), DATA[:PAGE_BYTES]
    for name in "abc":
        store.write(f"memory://{name}", page)
    budget = 2 * PAGE_BYTES + 8192
    disk = DiskCache(tmp_path, budget, free_share_min=0.0)
    reader = CachedStore(store, disk, CacheUsage(), memory_bytes_max=0)
    for name in "abc":
        assert reader.read(f"memory://{name}", 0, PAGE_BYTES) == page
    kept = [bool(disk.read(store.info(f"memory://{name}"), [0])) for name in "abc"]
    assert kept == [True, True, False]
    long_ago = time.time() - 3600
    oldest = disk._folder(store.info("memory://a"))
    os.utime(oldest, (long_ago, long_ago))
    later = DiskCache(tmp_path, budget, free_share_min=0.0)
    assert later.write(store.info("memory://c"), {0: page})
    kept = [bool(later.read(store.info(f"memory://{name}"), [0])) for name in "abc"]
    assert kept == [False, True, True]


def test_a_disk_that_can_not_be_used_is_no_cache(tmp_path: Path) -> None:
    store = MemoryStore()
    store.write("memory://data", DATA)
    occupied = tmp_path / "file"
    occupied.write_text("not a folder")
    for disk in (DiskCache(occupied, BUDGET), DiskCache(tmp_path / "full", BUDGET, free_share_min=1.0)):
        reader = CachedStore(store, disk, CacheUsage())
        assert reader.read("memory://data", 0, len(DATA)) == DATA
        assert not disk.read(store.info("memory://data"), [0, 1])


WRITER = """
import random, sys
from pathlib import Path
from elasticdl.shared.storage import ObjectInfo
from elasticdl.shared.storage.cache import DiskCache

folder, number = Path(sys.argv[1]), int(sys.argv[2])
disk = DiskCache(folder, int(sys.argv[3]), free_share_min=0.0)
order = random.Random(number).sample(range(400), 400)
print("ready", flush=True)
for round in range(1_000_000 if number == 0 else 1):
    for page in order:
        data = bytes([page % 251]) * 65536
        info = ObjectInfo(uri=f"s3://b/{page // 100}", size_bytes=100 * 65536, etag=str(round))
        disk.write(info, {page % 100: data})
        found = disk.read(info, [page % 100])
        assert all(each == data for each in found.values())
"""


def test_processes_share_a_folder_and_may_be_killed(tmp_path: Path) -> None:
    budget = 16 << 20
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(number), str(budget)], stdout=subprocess.PIPE
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers[1:]:
        writer.communicate()
        assert writer.returncode == 0
    writers[0].send_signal(signal.SIGKILL)
    writers[0].communicate()
    assert 8 << 20 < size_on_disk(tmp_path) <= budget
    after = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path), "4", str(budget)], check=False, capture_output=True
    )
    assert after.returncode == 0, after.stderr.decode()
