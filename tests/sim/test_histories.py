"""Today's core decides as it did in the recorded logs of real jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.histories.logs import FOLDER, SUFFIX, read_log, replayed

from elasticdl.master.core.fold import fold
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.events import Decided, LogRecord
from elasticdl.views.reading import verify

LOGS = sorted(FOLDER.glob(f"*{SUFFIX}"))


def test_there_are_histories() -> None:
    assert len(LOGS) >= 6


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
async def test_decisions_are_the_recorded_ones(path: Path) -> None:
    verified = await verify(replayed(path))
    assert verified.decisions >= 5
    assert not verified.differences, "a decision has changed; if that is intended: make histories"


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_the_recorded_jobs_were_exact(path: Path) -> None:
    state = fold(list(read_log(path)))
    assert state.job_state is JobState.SUCCEEDED
    assert state.closing.audit is not None
    assert state.closing.audit.exact


async def test_a_changed_decision_is_noticed() -> None:
    async def changed() -> AsyncIterator[LogRecord]:
        done = False
        for record in read_log(LOGS[0]):
            decided = record.envelope.event
            if not done and isinstance(decided, Decided) and len(decided.commands) > 1:
                done = True
                fewer = replace(decided, commands=decided.commands[:-1])
                yield replace(record, envelope=replace(record.envelope, event=fewer))
            else:
                yield record

    assert (await verify(changed())).differences
