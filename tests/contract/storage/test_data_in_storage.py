"""Data sets in a bucket of a real S3 server, read as workers read them."""

from __future__ import annotations

import secrets

import pytest
from tests.contract.servers.s3 import S3Server

from elasticdl.shared.data import PlannedData, Reader, ReaderOptions, plan_sources
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.plan import Plan, Shard, Shuffle
from elasticdl.shared.names import TaskId
from elasticdl.shared.storage import ObjectStore, open_store
from elasticdl.shared.storage.cache import CachedStore, CacheUsage

IMAGES = {
    f"{kind}/{number}.png": b"\x89PNG\r\n\x1a\n%s %d" % (kind.encode(), number) for kind in "ab" for number in range(20)
}


@pytest.fixture
def s3(s3_server: S3Server, bucket: str) -> tuple[ObjectStore, str]:
    return open_store("s3://", s3_server.settings()), f"s3://{bucket}/{secrets.token_hex(6)}"


def cached(store: ObjectStore, data: PlannedData) -> tuple[Reader, CacheUsage]:
    usage = CacheUsage()
    through = CachedStore(store, None, usage)
    reader = Reader(
        store=through,
        sources=data.sources,
        schema=data.schema,
        index=data.indices.__getitem__,
        prefetch=through.prefetch,
    )
    return reader, usage


def test_images_in_folders(s3: tuple[ObjectStore, str]) -> None:
    store, prefix = s3
    for name, content in IMAGES.items():
        store.write(f"{prefix}/{name}", content)
    data = plan_sources(prefix, ReaderOptions(), store)
    assert [source.records for source in data.sources] == [len(IMAGES)]
    reader, usage = cached(store, data)
    everything = Shard(source=0, start=0, end=len(IMAGES))
    columns = reader.read(everything).columns
    found = dict(zip(columns["file"].tolist(), columns["image"].tolist(), strict=True))
    assert found == IMAGES
    assert columns["label"].tolist() == [int(str(name).startswith("b")) for name in columns["file"].tolist()]
    assert usage.requests == len(IMAGES), "a request for each image, and none for its etag"
    store.write(f"{prefix}/b/7.png", IMAGES["b/7.png"][:-1] + b"8")
    with pytest.raises(UserError, match=r"b/7\.png changed since the job was planned"):
        reader.read(everything)


@pytest.mark.parametrize("name", ["csv", "jsonl"])
def test_the_tasks_of_a_global_shuffle(s3: tuple[ObjectStore, str], name: str) -> None:
    store, prefix = s3
    header, line = ("number\n", "%d\n") if name == "csv" else ("", '{"number": %d}\n')
    for file in range(3):
        text = header + "".join(line % number for number in range(file * 5000, (file + 1) * 5000))
        store.write(f"{prefix}/{file}.{name}", text.encode())
    data = plan_sources(prefix, ReaderOptions(), store)
    reader, usage = cached(store, data)
    plan = Plan(
        sources=data.sources, epochs=2, shuffle=Shuffle.GLOBAL, seed=1, minibatch_size=64, minibatches_per_task=8
    )
    requests: list[int] = []
    for epoch in (0, 1):
        found: list[object] = []
        for task in range(epoch * plan.tasks_per_epoch, (epoch + 1) * plan.tasks_per_epoch):
            block = reader.read_all(plan.shards(TaskId(task)))
            found += block.columns["number"].tolist()
        assert sorted(map(int, map(str, found))) == list(range(15_000))
        requests.append(usage.requests)
    assert usage.fetched_bytes == sum(source.size_bytes for source in data.sources), "no page is requested twice"
    assert requests[1] == requests[0], "the second epoch sends no request"
