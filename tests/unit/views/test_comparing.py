"""Two jobs side by side."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tests.unit.views.recorded import recorded

from elasticdl.master.core.fold import fold
from elasticdl.views.replays.comparing import numbers, settings, settings_that_differ, side_by_side
from elasticdl.views.wall_time.fold import wall_time


def test_only_settings_that_differ_are_named() -> None:
    spec = fold(recorded("plain")).job
    other = replace(spec, workers=7, limits=replace(spec.limits, lease_s=3.5), created_s=1.0)
    found = [(each.where, each.after) for each in settings_that_differ(spec, other)]
    assert found == [("limits.lease_s", "3.5"), ("workers", "7")]
    assert settings_that_differ(spec, spec) == []


def test_values_that_may_be_secret_are_not_shown() -> None:
    spec = fold(recorded("plain")).job
    spec = replace(
        spec,
        envs=MappingProxyType({"TOKEN": "secret"}),
        model=replace(spec.model, exported="s3://user:secret@host/bucket", params=MappingProxyType({"a": "secret"})),
    )
    assert "TOKEN" in str(settings(spec)) and "secret" not in str(settings(spec))


def test_numbers_stand_side_by_side_by_name() -> None:
    found, others = (
        numbers(fold(records), wall_time(records)) for records in (recorded("ps-killed"), recorded("plain"))
    )
    rows = {name: [one, other] for name, _, one, other in side_by_side(found, others)}
    assert rows["processes started again"] == [1, 0]
    assert rows["batches done"] == [750, 750]
    lost, nothing = rows["computing batches again that a lost ps had absorbed"]
    assert lost and nothing is None


def test_numbers_of_a_log_that_has_just_begun() -> None:
    for length in range(4):
        records = recorded("plain")[:length]
        assert numbers(fold(records), wall_time(records))
