"""Two jobs side by side: the settings that differ, and the numbers that matter. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from elasticdl.master.core import State
from elasticdl.shared.job.spec import JobSpec
from elasticdl.views.files.exported_log import without_passwords
from elasticdl.views.history import final_metrics
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.statistics import staleness_facts
from elasticdl.views.wall_time.causes import WORDS
from elasticdl.views.wall_time.values import WallTime
from elasticdl.views.what_if.differences import Difference, differences

_LEFT_OUT = frozenset({"job", "created_s", "checksum", "epoch_checksum", "sources", "storage", "output"})
"""Settings that are another one in each job, and long ones that the plan's fingerprint stands for."""
_NAMES_ONLY = frozenset({"envs", "params"})
"""Settings whose values may be secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A key number of a job; ``unit``: ``s``, ``%``, ``/s`` or empty. None: unknown."""

    name: str
    unit: str
    value: float | None


def settings(spec: JobSpec) -> dict[str, Any]:
    """A job's settings as JSON values, without secrets, and without those that are another one in each job."""
    found: dict[str, Any] = _plain(spec)
    plan = found["plan"] | {"fingerprint": spec.plan.fingerprint, "files": len(spec.plan.sources)}
    return found | {"plan": plan}


def settings_that_differ(one: JobSpec, other: JobSpec) -> list[Difference]:
    """The settings that two jobs do not share, in the order of their names."""
    return differences(settings(one), settings(other))


def numbers(state: State, time: WallTime) -> list[Number]:
    """The key numbers of a job: how far, how good, how fast, and the parts of its wall time."""
    progress = progress_snapshot(state, {}, state.now_s, 0.0)
    training_s = max(0.0, state.trained_s - state.first_step_s) if state.first_step_s else 0.0
    metrics, source = final_metrics(state) if state.spec and state.training else ({}, "")
    staleness = staleness_facts(state)
    again = sum(max(0, pod.starts - 1) for pod in state.pods.values())
    rows: list[tuple[str, str, float | None]] = [
        ("wall time", "s", time.wall_s),
        ("useful", "%", time.percent(time.useful_s)),
        ("epochs done", "", state.training.epochs_complete if state.training else 0),
        ("batches done", "", progress.batches[0]),
        *([] if "loss" in metrics else [("loss", "", progress.loss)]),
        *((name if name != "loss" else f"loss, {source}", "", value) for name, value in sorted(metrics.items())),
        ("records per second", "/s", progress.records / training_s if training_s else None),
        ("staleness, mean", "", staleness["mean"]),
        ("workers wanted", "", state.workers),
        ("ps wanted", "", state.ps),
        ("processes started again", "", again),
        *((WORDS[part.cause].title, "s", part.seconds) for part in time.parts),
    ]
    return [Number(name=name, unit=unit, value=value) for name, unit, value in rows]


def side_by_side(one: Sequence[Number], other: Sequence[Number]) -> list[tuple[str, str, float | None, float | None]]:
    """Rows of name, unit and both values; those that one job does not have come last."""
    found, others = {each.name: each for each in one}, {each.name: each for each in other}
    rows = []
    for name in [*found, *(name for name in others if name not in found)]:
        known = found.get(name) or others[name]
        mine, theirs = found.get(name), others.get(name)
        rows.append((name, known.unit, mine.value if mine else None, theirs.value if theirs else None))
    return rows


def _plain(value: object, name: str = "") -> Any:
    match value:
        case str():
            return without_passwords(value)
        case Enum():
            return value.value
        case bytes():
            return value.hex()
        case Mapping():
            return {key: "set" if name in _NAMES_ONLY else _plain(each) for key, each in value.items()}
        case list() | tuple():
            return ", ".join(str(_plain(each)) for each in value)
        case _ if is_dataclass(value):
            return {
                field.name: _plain(getattr(value, field.name), field.name)
                for field in fields(value)
                if field.name not in _LEFT_OUT
            }
        case _:
            return value
