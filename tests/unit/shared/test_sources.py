"""Very many sources are packed, and nothing else can tell."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.master.driver import job_spec
from tests.unit.shared.test_plan import make

from elasticdl.shared.job.plan import Plan
from elasticdl.shared.job.sources import PackedSources, Source
from elasticdl.shared.messages.codec import decode_spec, encode_spec
from elasticdl.shared.names import TaskId

MANY = 10_000
"""Sources from which on they are packed."""
NAMES = st.text(max_size=6)  # With what is no character: names of files may have any bytes.
sources_of = st.lists(
    st.builds(Source, uri=NAMES, etag=NAMES, size_bytes=st.integers(0, 1 << 60), records=st.integers(0, 1 << 48)),
    max_size=40,
)


def generated(count: int, start: int = 0) -> tuple[Source, ...]:
    return tuple(
        Source(uri=f"s3://bucket/{number}.csv", size_bytes=number, etag=f"{number:032x}", records=number % 7)
        for number in range(start, start + count)
    )


@cache
def many() -> tuple[Source, ...]:
    return generated(MANY + 300)


@given(sources_of)
def test_packed_sources_are_those_that_were_given(sources: list[Source]) -> None:
    packed = PackedSources(sources)
    assert packed == tuple(sources) == packed
    assert tuple(packed) == tuple(sources)
    assert (len(packed), list(packed.records)) == (len(sources), [source.records for source in sources])
    assert hash(packed) == hash(tuple(sources))
    assert pickle.loads(pickle.dumps(packed)) == packed


@given(st.integers(-700, 700), st.slices(600))
def test_one_and_some_are_found_by_number(index: int, some: slice) -> None:
    sources = generated(600)
    packed = PackedSources(sources)
    assert packed[some] == sources[some]
    if -600 <= index < 600:
        assert packed[index] == sources[index]
    else:
        with pytest.raises(IndexError):
            packed[index]


def test_other_sources_are_not_equal() -> None:
    packed = PackedSources(generated(600))
    assert packed != PackedSources(generated(599))
    assert packed != PackedSources(generated(600, 1))
    assert packed != generated(600, 1)
    assert packed != generated(599)
    assert packed != list(generated(600))


def test_a_plan_packs_very_many_sources_and_is_the_same_plan() -> None:
    plain = make([0, 1, 2, 3, 4, 5, 6])
    plan = replace(plain, sources=many())
    assert isinstance(plan.sources, PackedSources)
    assert isinstance(replace(plan, sources=many()[: MANY - 1]).sources, tuple)
    assert plan == replace(plain, sources=PackedSources(many()))
    shards = [shard for task in range(plan.tasks) for shard in plan.shards(TaskId(task))]
    assert sum(shard.records for shard in shards) == plan.records == sum(source.records for source in many())
    assert {shard.source for shard in shards} == {n for n, source in enumerate(many()) if source.records}
    assert sum(plan.batches_of(TaskId(task)) for task in range(plan.tasks)) == plan.batches


def test_the_fingerprint_of_very_many_sources_is_that_of_the_version_that_packed_none() -> None:
    class Unpacked(Plan):
        def __post_init__(self) -> None:
            pass

    facts = {name: getattr(make([1]), name) for name in Plan.__dataclass_fields__}
    unpacked = Unpacked(**(facts | {"sources": many()}))
    assert isinstance(unpacked.sources, tuple)
    assert replace(make([1]), sources=many()).fingerprint == unpacked.fingerprint


def test_very_many_sources_survive_the_codec_packed() -> None:
    few = job_spec()
    spec = replace(few, plan=replace(few.plan, sources=many()))
    decoded = decode_spec(encode_spec(spec))
    assert decoded == spec
    assert isinstance(decoded.plan.sources, PackedSources)
    assert isinstance(decode_spec(encode_spec(few)).plan.sources, tuple)
