"""Requests that were made up or bent on the way: refused or hung up on, never fatal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.ps.example import DENSE_SIZE, PLAN, initial_dense, signature

from elasticdl.ps.handler import PsHandler
from elasticdl.ps.shard.core import PsCore
from elasticdl.ps.shard.group import UpdatePolicy
from elasticdl.shared.errors import ProtocolError
from elasticdl.shared.job.rounds import Rounds
from elasticdl.shared.model.partitioning import dense_parts
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import new_incarnation
from elasticdl.shared.wire import messages
from elasticdl.shared.wire.buffers import BufferPool
from elasticdl.shared.wire.connection import Frame
from elasticdl.shared.wire.frames import Tensor
from elasticdl.shared.wire.message_codec import decode_reply, decode_request, encode_request
from elasticdl.shared.wire.messages import Doubles, Floats, Ids

PUSH = messages.Push(
    plan=PLAN.fingerprint,
    placement_version=1,
    task=0,
    batch=0,
    batches=4,
    records=3,
    checksum=1,
    rate=0.5,
    dense=np.ones(33, np.float32),
    statistics=np.ones(3, np.float32),
    tables=(
        messages.TableGradients(table=0, ids=np.arange(3), gradients=np.ones((3, 4), np.float32)),
        messages.TableGradients(table=1, ids=np.arange(2), gradients=np.ones((2, 2), np.float32)),
    ),
)
PULL = messages.Pull(
    plan=PLAN.fingerprint,
    placement_version=1,
    pin=0,
    dense=True,
    tables=(messages.TableIds(table=1, width=2, ids=np.arange(5)),),
)
INITIALISE = messages.Initialise(
    plan=PLAN.fingerprint,
    signature=signature().to_json(),
    placement_version=1,
    dense=dense_parts(signature().dense, Placement.even(1))[0].gather(initial_dense()),
)
NEXT_BATCH = messages.NextBatch(plan=PLAN.fingerprint, placement_version=1, task=3, batches=1)
EXCHANGE = messages.Exchange(
    plan=PLAN.fingerprint,
    placement_version=1,
    task=3,
    batch=0,
    weights="ps-0:7",
    position=2,
    backward=True,
    values=np.ones(3),
)
REQUESTS = [encode_request(request) for request in (PUSH, PULL, INITIALISE, NEXT_BATCH, EXCHANGE)]


def handler(policy: UpdatePolicy | None = None) -> PsHandler:
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=policy or UpdatePolicy())
    core.initialise(INITIALISE)
    core.start_serving()
    return PsHandler(core, new_incarnation(), pull_wait_s=0.001)


def answer(handle: PsHandler, meta: bytes, tensors: Sequence[Tensor]) -> messages.Reply | None:
    """The reply, or None when the connection would be closed."""
    try:
        response = handle(Frame(1, meta, tuple(tensors), BufferPool(), None))
    except ProtocolError:
        return None
    reply, _ = decode_reply(response.meta, response.tensors)
    response.sent()
    return reply


def test_requests_survive_the_codec() -> None:
    sent_requests: list[messages.Request] = [PUSH, PULL, INITIALISE, NEXT_BATCH, EXCHANGE]
    for (meta, tensors), sent in zip(REQUESTS, sent_requests, strict=True):
        np.testing.assert_equal(asdict(decode_request(meta, tensors)), asdict(sent))


def test_well_formed_requests_are_answered() -> None:
    handle = handler(UpdatePolicy(rounds=Rounds(plan=PLAN, tasks_per_cohort=2)))
    kinds = [type(answer(handle, meta, list(tensors))) for meta, tensors in REQUESTS]
    assert kinds == [
        messages.PushReply,
        messages.PullReply,
        messages.InitialiseReply,
        messages.NextBatchReply,
        messages.ExchangeReply,
    ]


def test_an_asynchronous_job_adds_up_nothing() -> None:
    refusal = answer(handler(), *encode_request(EXCHANGE))
    assert isinstance(refusal, messages.Refusal)
    assert "synchronous" in refusal.message


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"task": 1 << 60}, messages.RefusalKind.PROTOCOL),
        ({"batch": 1}, messages.RefusalKind.PROTOCOL),
        ({"plan": "another"}, messages.RefusalKind.USER),
        ({"placement_version": 0}, messages.RefusalKind.MOVED),
        ({"placement_version": 2}, messages.RefusalKind.NOT_READY),
    ],
)
def test_a_contribution_that_does_not_fit_the_job_is_refused(wrong: dict[str, Any], kind: messages.RefusalKind) -> None:
    refusal = answer(
        handler(UpdatePolicy(rounds=Rounds(plan=PLAN, tasks_per_cohort=2))),
        *encode_request(replace(EXCHANGE, **wrong)),
    )
    assert isinstance(refusal, messages.Refusal)
    assert refusal.kind is kind


@settings(max_examples=300)
@given(
    which=st.integers(0, len(REQUESTS) - 1),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_bent_meta_is_refused_or_answered(which: int, changes: list[tuple[int, int]]) -> None:
    meta, tensors = REQUESTS[which]
    bent = bytearray(meta)
    for position, value in changes:
        bent[position % len(bent)] = value
    answer(handler(), bytes(bent), list(tensors))


floats = st.integers(0, 40).map(lambda size: np.ones(size, np.float32))
doubles = st.integers(0, 40).map(np.ones)
ids = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20).map(lambda values: np.array(values, np.int64))


@settings(max_examples=200)
@given(which=st.integers(0, len(REQUESTS) - 1), tensors=st.lists(floats | doubles | ids, max_size=5))
def test_other_tensors_are_refused_or_answered(which: int, tensors: list[Floats | Doubles | Ids]) -> None:
    answer(handler(), REQUESTS[which][0], list(tensors))


@settings(max_examples=100)
@given(
    table=st.integers(0, 3),
    width=st.sampled_from([0, 1, 2, 4, 2**32 - 1]),
    wanted=ids,
    pin=st.integers(0, 2),
    dense=st.booleans(),
)
def test_any_pull_is_answered_with_as_much_as_was_asked_or_refused(
    table: int, width: int, wanted: Ids, pin: int, dense: bool
) -> None:
    tables = (messages.TableIds(table=table, width=width, ids=wanted),)
    request = messages.Pull(plan=PLAN.fingerprint, placement_version=1, pin=pin, dense=dense, tables=tables)
    reply = answer(handler(), *encode_request(request))
    if isinstance(reply, messages.PullReply):
        assert reply.dense.size == (DENSE_SIZE if dense else 0)
        assert reply.rows.size == wanted.size * width
    else:
        assert isinstance(reply, messages.Refusal)


def changed(change: Callable[[Any], object]) -> str:
    facts = json.loads(signature().to_json())
    change(facts)
    return json.dumps(facts)


NO_MODELS = {
    "no JSON": "{",
    "deep": "[" * 100_000,
    "a list": "[]",
    "shape of strings": changed(lambda facts: facts["dense"][0].update(shape=["a", "b"])),
    "shape of a negative size": changed(lambda facts: facts["dense"][0].update(shape=[-5, 3])),
    "shape of true": changed(lambda facts: facts["dense"][0].update(shape=[True, 15])),
    "a huge shape": changed(lambda facts: facts["dense"][0].update(shape=[1 << 39])),
    "an endless shape": changed(lambda facts: facts["dense"][0].update(shape=[1 << 39] * 100)),
    "a number as a name": changed(lambda facts: facts["dense"][0].update(name=7)),
    "a rule of text": changed(lambda facts: facts["dense"][1].update(state="sum")),
    "a momentum of text": changed(lambda facts: facts["dense"][1]["state"].update(momentum="x")),
    "a width of text": changed(lambda facts: facts["tables"][0].update(width="4")),
    "a huge width": changed(lambda facts: facts["tables"][0].update(width=1 << 50)),
    "no width": changed(lambda facts: facts["tables"][0].update(width=0)),
    "a table of text": changed(lambda facts: facts.update(tables=["a"])),
    "bounds of text": changed(lambda facts: facts["tables"][0]["initializer"].update(low="x")),
    "input_dim of text": changed(lambda facts: facts["tables"][0].update(input_dim="x")),
    "a rate of text": changed(lambda facts: facts["optimizer"].update(learning_rate="x")),
    "a rate that is not finite": changed(lambda facts: facts["optimizer"].update(learning_rate=float("nan"))),
    "hyperparameters in a list": changed(lambda facts: facts["optimizer"].update(hyperparameters=["momentum"])),
    "a hyperparameter of text": changed(lambda facts: facts["optimizer"].update(hyperparameters={"momentum": "x"})),
    "a schedule of text": changed(
        lambda facts: facts["optimizer"].update(
            schedule="ExponentialDecay",
            schedule_config={"initial_learning_rate": "x", "decay_steps": 5, "decay_rate": 0.5},
        )
    ),
    "a seed of text": changed(lambda facts: facts.update(seed="x")),
    "a huge seed": changed(lambda facts: facts.update(seed=1 << 100)),
}


@pytest.mark.parametrize("model", NO_MODELS.values(), ids=NO_MODELS)
def test_what_is_no_model_is_refused_and_a_model_still_accepted(model: str) -> None:
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy())
    handle = PsHandler(core, new_incarnation())
    meta, tensors = encode_request(replace(INITIALISE, signature=model))
    assert isinstance(answer(handle, meta, list(tensors)), messages.Refusal)
    assert answer(handle, *REQUESTS[2]) == messages.InitialiseReply(first=True)
    core.start_serving()
    assert isinstance(answer(handle, *REQUESTS[0]), messages.PushReply)


def test_a_model_that_memory_has_no_room_for_is_refused_at_the_start() -> None:
    core = PsCore(plan=PLAN, placement=Placement.even(1), number=0, policy=UpdatePolicy(), memory_bytes_max=100)
    refusal = answer(PsHandler(core, new_incarnation()), *REQUESTS[2])
    assert isinstance(refusal, messages.Refusal)
    assert refusal.kind is messages.RefusalKind.USER
    assert "100 are allowed: use more ps" in refusal.message
