"""The contents of the page's panels at one point of a log, as JSON values. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from elasticdl.shared.errors import UserError
from elasticdl.shared.job.tasks import TaskRef
from elasticdl.shared.messages.events import Decided, Envelope
from elasticdl.shared.model.placement import Placement
from elasticdl.shared.names import Purpose
from elasticdl.shared.storage import display
from elasticdl.shared.words import size
from elasticdl.views.history import evaluation_rows
from elasticdl.views.points import condition, is_type
from elasticdl.views.progress import progress_snapshot
from elasticdl.views.records import event_text, task_history
from elasticdl.views.replaying import Replay
from elasticdl.views.replays import comparing
from elasticdl.views.task_times import TIME_COLUMNS, task_times
from elasticdl.views.tasks import TASK_COLUMNS, TaskFilter, TaskQuery, task_counts, task_rows
from elasticdl.views.wall_time.values import wall_time_facts

EVENTS_MAX = 1000
TEXT_CHARS_MAX = 600
CURVE_POINTS_MAX = 2000
"""Most points of one curve that the page gets; it says how many there are."""


_EVALUATION = re.compile("evaluation_(.*)_vs_iterations")


def overview(replay: Replay, seq: int) -> dict[str, Any]:
    """Progress, evaluations and snapshots after a record."""
    state = replay.state_at(seq)
    record = replay.records[seq - 1] if 0 < seq <= len(replay.records) else None
    facts: dict[str, Any] = {
        "seq": seq,
        "time_s": state.now_s,
        "event": event_text(record.envelope.event)[:TEXT_CHARS_MAX] if record else "",
        "state": state.job_state.value,
        "message": state.failure.message if state.failure else state.stop_reason,
    }
    if state.spec is None:
        return facts
    progress = progress_snapshot(state, {}, state.now_s, 0.0)
    return {
        **facts,
        "progress": {**asdict(progress), "kind": progress.kind.value, "state": progress.state.value},
        "tasks": task_counts(state),
        "evaluations": evaluation_rows(state)[-20:],
        "snapshots": [
            {"ps": ps, "step": each.step, "time_s": each.time_s, "bytes": each.size_bytes, "at": display(each.manifest)}
            for ps, each in sorted(state.snapshots.items())
        ],
    }


def why(replay: Replay, seq: int) -> dict[str, Any]:
    """Where the time until a record went."""
    return wall_time_facts(replay.wall_time_at(seq))


def pods(replay: Replay, seq: int, text: str, start: int, limit: int) -> dict[str, Any]:
    """Some rows of the table of processes after a record.

    Args:
        text: a part of the name, in any case.
        start, limit: which of the rows that match.
    """
    state = replay.state_at(seq)
    working: dict[str, list[str]] = {}
    for ref, attempts in state.running_attempts.items():
        for incarnation in attempts:
            working.setdefault(incarnation, []).append(str(ref))
    names = sorted((name for name in state.pods if text.lower() in name), key=_in_order)
    rows = [
        {
            "name": name,
            "service": pod.service.value,
            "phase": pod.phase.value,
            "pending": pod.pending,
            "starts": pod.starts,
            "tasks": working.get(pod.incarnation, []),
            "slow": pod.slow.work if pod.slow else "",
        }
        for name in names[start : start + limit]
        for pod in (state.pods[name],)
    ]
    return {"rows": rows, "count": len(names), "from": start}


def _in_order(name: str) -> tuple[str, int, str]:
    """Names by their numbers."""
    kind, _, number = name.rpartition("-")
    return kind, int(number) if number.isdecimal() else 0, name


def comparison(one: Replay, other: Replay) -> dict[str, Any]:
    """Two jobs side by side, as far as their logs are read: rows of settings that differ, and of numbers."""
    states = [replay.state_at(len(replay.records)) for replay in (one, other)]
    times = [replay.wall_time_at(len(replay.records)) for replay in (one, other)]
    mine, theirs = map(comparing.numbers, states, times)
    first, second = (state.spec for state in states)
    different = comparing.settings_that_differ(first, second) if first and second else []
    return {
        "states": [state.job_state.value for state in states],
        "settings": [[each.where, each.before, each.after] for each in different],
        "numbers": comparing.side_by_side(mine, theirs),
    }


def curves(replay: Replay, after: int) -> dict[str, Any]:
    """The points that records above a number made known, by run and name; large curves are sampled."""
    found: dict[str, list[list[float | None]]] = {}
    counts: dict[str, int] = {}
    for each in replay.curve_points:
        point = each.point
        name = f"{point.run.value}/{point.tag}"
        counts[name] = counts.get(name, 0) + 1
        if each.seq > after:
            value = point.value if math.isfinite(point.value) else None
            found.setdefault(name, []).append([each.seq, point.step, point.time_s, value])
    sampled = {name: _sampled(points) for name, points in found.items()}
    return {"points": sampled, "counts": counts}


def _sampled(points: list[list[float | None]]) -> list[list[float | None]]:
    step = math.ceil(len(points) / CURVE_POINTS_MAX)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def timeline(replay: Replay) -> dict[str, Any]:
    """When each process lived, and its work; where the model was; the generations of a ring; and marks.

    Spans are rows of (process, kind, start, end, first and last event, text); placements of (event, time, version,
    runs of (first partition, end, number of the ps)); generations of (event, time, number, members, reason); marks of
    (kind, process, time, event, text).
    """
    processes = replay.processes
    services = sorted(processes.services.items(), key=lambda item: _in_order(item[0]))
    return {
        "processes": [{"name": name, "service": each.value} for name, each in services],
        "spans": [
            [each.process, each.kind, each.start_s, each.end_s, each.start_seq, each.end_seq, each.text]
            for each in processes.spans
        ],
        "left_out": processes.left_out,
        "placements": [
            [each.seq, each.time_s, each.placement.version, _runs(each.placement)] for each in replay.marks.placements
        ],
        "generations": [
            [each.seq, each.time_s, each.number, each.members, each.reason] for each in replay.marks.generations
        ],
        "marks": [*_evaluations(replay), *_snapshots(replay)],
        "snapshots": replay.marks.snapshot_count,
    }


def _runs(placement: Placement) -> list[tuple[int, int, int]]:
    """Neighbouring partitions of one ps: the first, the end, and the ps."""
    return sorted((start, end, ps) for ps in placement.holders for start, end in placement.partitions(ps))


def _evaluations(replay: Replay) -> Iterator[list[Any]]:
    """A mark for each evaluation that has ended, with its metrics."""
    found: dict[tuple[int, int], list[str]] = {}
    times: dict[tuple[int, int], float] = {}
    for each in replay.curve_points:
        point = each.point
        if name := _EVALUATION.fullmatch(point.tag):
            key = each.seq, point.step
            found.setdefault(key, []).append(f"{name[1]} {point.value:.4g}")
            times[key] = point.time_s
    for (seq, step), metrics in found.items():
        yield ["evaluation", "", times[seq, step], seq, f"step {step}: {', '.join(metrics)}"]


def _snapshots(replay: Replay) -> Iterator[list[Any]]:
    for each in replay.marks.snapshots:
        yield ["snapshot", each.ps, each.time_s, each.seq, size(each.size_bytes)]


def events(
    replay: Replay, before: int, types: Iterable[str], where: Iterable[str], text: str, limit: int = EVENTS_MAX
) -> dict[str, Any]:
    """The latest events up to a record, the latest first.

    Args:
        types, where: as the flags of ``elasticdl events``. Raises ``UserError``: they name no type or field.
        text: a part of the line, in any case.
    """
    matches: list[Callable[[Any], bool]] = [is_type(name) for name in types]
    conditions: list[Callable[[Envelope], bool]] = [condition(each) for each in where]
    rows: list[dict[str, Any]] = []
    seq = min(before, len(replay.records))
    while seq > 0 and len(rows) < limit:
        record = replay.records[seq - 1]
        seq -= 1
        envelope = record.envelope
        if matches and not any(each(envelope.event) for each in matches):
            continue
        if not all(each(envelope) for each in conditions):
            continue
        line = event_text(envelope.event)
        if text and text.lower() not in f"{envelope.name} {line}".lower():
            continue
        reasons = list(envelope.event.reasons) if isinstance(envelope.event, Decided) else []
        row = {"seq": record.seq, "time_s": envelope.time_s, "name": envelope.name, "reasons": reasons}
        rows.append({**row, "text": line[:TEXT_CHARS_MAX]})
    return {"events": rows, "more": seq > 0}


def tasks(replay: Replay, seq: int, query: TaskQuery) -> dict[str, Any]:
    """Rows of the task table after a record."""
    state = replay.state_at(seq)
    if state.spec is None or state.training is None:
        return {"columns": TASK_COLUMNS, "rows": [], "more": False, "counts": {}}
    times = task_times(replay.records[:seq]) if query.needs_times else None
    rows, more = task_rows(state, query, times)
    columns = (*TASK_COLUMNS, *(TIME_COLUMNS if times is not None else ()))
    return {"columns": columns, "rows": rows, "more": more, "counts": task_counts(state)}


def task_query(values: dict[str, str]) -> TaskQuery:
    """The query of a request. Raises ``UserError``: it is none."""
    try:
        return TaskQuery(
            state=TaskFilter(values["state"]) if values.get("state") else None,
            epoch=int(values.get("epoch") or 0),
            worker=values.get("worker", ""),
            slowest=int(values.get("slowest") or 0),
            limit=min(1000, int(values.get("limit") or 100)),
        )
    except ValueError as error:
        raise UserError(f"the filter is wrong: {error}") from error


def story(replay: Replay, seq: int, number: int) -> dict[str, Any]:
    """The history of one training task until a record."""
    ref = TaskRef(purpose=Purpose.TRAIN, number=number)
    return {"task": number, "history": [asdict(each) for each in task_history(replay.records[:seq], ref)]}


def finite(value: Any) -> Any:
    """A value as JSON has it: a number that is not finite becomes null, because JSON has none."""
    match value:  # Most values are the first ones here.
        case float():
            return value if math.isfinite(value) else None
        case str() | int():
            return value
        case Mapping():
            return {name: finite(each) for name, each in value.items()}
        case list() | tuple():
            return [finite(each) for each in value]
        case _:
            return value
