"""Former core snapshots lie along the log: a reader of any of its beginnings starts at the one before."""

from __future__ import annotations

import pytest
from tests.histories.logs import append
from tests.histories.snapshots import keep_snapshots
from tests.unit.views.recorded import LOGS, recorded

from elasticdl.master.core.fold import fold
from elasticdl.shared.bus import Bus
from elasticdl.views import core_snapshot
from elasticdl.views.reading import exact, snapshot_states

STRETCH = 40


@pytest.mark.parametrize("name", [path.stem for path in LOGS])
async def test_any_beginning_of_a_log_is_read_from_the_snapshot_before(
    bus: Bus, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_snapshot, "STRETCH_RECORDS", STRETCH)
    monkeypatch.setattr(core_snapshot, "BYTES_PER_RECORD", 1 << 20)
    records = recorded(name)
    await append(bus.log, (record.envelope for record in records))
    await keep_snapshots(bus.core_snapshots, records, 7)
    for until in range(2 * STRETCH - 1, len(records), STRETCH):
        found = await exact(bus, until)
        assert core_snapshot.copy(found.state) == core_snapshot.copy(fold(records[:until]))
        assert found.snapshot_seq
    kept = [state.seq // STRETCH async for state, _ in snapshot_states(bus, len(records))]
    assert kept == sorted(set(kept), reverse=True)
    assert len(kept) >= len(records) // STRETCH - 1
