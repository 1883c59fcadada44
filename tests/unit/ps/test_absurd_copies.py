"""A copy for a move with right checksums and absurd content: the recipient refuses it, and takes the next one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.ps.example import BATCHES
from tests.unit.ps.test_damage import ABSURD, chunk_changed, group_changed, rows_of
from tests.unit.ps.test_moves import HALF, MakeJob, final, make_job, train, training_with_a_second_ps

from elasticdl.shared.model.manifests import Manifest

__all__ = ["make_job"]


def table_changed(manifest: Manifest, **changes: object) -> Manifest:
    content = json.loads(manifest.signature)
    content["tables"] = [{**table, **changes} for table in content["tables"]]
    return replace(manifest, signature=json.dumps(content))


COPIES: dict[str, Callable[[Manifest], Manifest]] = {
    **ABSURD,
    "fewer rows than bytes": lambda one: chunk_changed(one, rows_of(one), rows=1),
    "other partitions than were asked for": lambda one: group_changed(one, partitions=((200, 201),)),
    "no groups": lambda one: replace(one, groups=(), chunks=()),
    "tables of another width": lambda one: table_changed(one, width=7),
    "tables without a width": lambda one: table_changed(one, width=-1),
}


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_a_copy_with_right_checksums_and_absurd_content_fails_the_move_alone(
    make_job: MakeJob, change: Callable[[Manifest], Manifest]
) -> None:
    job, client, mover, recipient = training_with_a_second_ps(make_job)
    assert mover.copy(0, 1, HALF, 2, freeze=False, change=change).failure
    mover.end(2)
    mover.move(0, 1, HALF, 3)
    train(client, BATCHES[4:])
    assert [final(job, number, 150 + number).step for number in (0, 1)] == [len(BATCHES)] * 2
    assert recipient.core.owned == HALF
