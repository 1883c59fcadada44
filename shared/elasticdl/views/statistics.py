"""How stale the gradients of a job were, and what its tables hold: as facts and as text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypedDict

from elasticdl.master.core import State
from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.shared.words import count


def staleness_facts(state: State) -> dict[str, Any]:
    """The staleness of absorbed batches, in total and by worker, as JSON values; see ``report.py``."""
    by_worker = state.training.statistics.staleness if state.training else {}
    workers = {name: _facts(totals) for name, totals in sorted(by_worker.items()) if totals.batches}
    total = StalenessTotals.of_all(by_worker.values())
    bound = _bound(state, len(workers))
    late = total.count_above(bound) if bound is not None else 0
    return {**_facts(total), "bound": bound, "beyond_bound": late, "workers": workers}


def staleness_rows(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of what ``staleness_facts`` found; nothing if no gradient was stale or could have been."""
    if not facts["largest"] and facts["bound"] is None:
        return
    share = f"; pulls and pushes took {facts['exchange_share']:.0%} of the workers' time"
    yield "staleness", _text(facts) + share
    if len(facts["workers"]) > 1:
        for name, of_worker in facts["workers"].items():
            yield f"staleness {name}", _text(of_worker)
    if facts["beyond_bound"]:
        late = count(facts["beyond_bound"], "batch was", "batches were")
        yield "staleness", f"{late} later than {count(facts['bound'], 'update')}, after a worker died or was too slow"


def _bound(state: State, workers: int) -> int | None:
    """The greatest staleness that the job allows; None: any."""
    if state.spec is None or not state.spec.bounds_staleness:
        return None
    return state.spec.max_staleness if state.spec.max_staleness is not None else max(0, workers - 1)


def _facts(totals: StalenessTotals) -> dict[str, Any]:
    return {
        "batches": totals.count,
        "mean": round(totals.mean, 3),
        "p99": totals.quantile(0.99),
        "largest": totals.largest,
        "exchange_s": round(totals.exchange_s, 3),
        "exchange_share": round(totals.exchange_s / totals.total_s, 4) if totals.total_s else 0.0,
    }


def _text(facts: dict[str, Any]) -> str:
    return f"mean {facts['mean']:.2f} updates, 99th percentile {facts['p99']}, largest {facts['largest']}"


class TableRow(TypedDict):
    """The figures of a table, summed over all ps, when they were counted last."""

    rows: int
    candidates: int
    admitted: int
    expired: int
    dropped_gradients: int


def table_rows(state: State) -> dict[str, TableRow]:
    """Table -> its figures, for tables that every ps with a part of the model has counted."""
    return {name: row for name in sorted(state.tables) if (row := _row(state, name))}


def _row(state: State, name: str) -> TableRow | None:
    counted = [state.tables[name].get(ps) for ps in state.holders]
    found = [each for each in counted if each is not None]
    if len(found) < len(counted):
        return None
    rows, admitted = sum(each.rows for each in found), sum(each.admitted for each in found)
    return TableRow(
        rows=rows,
        candidates=sum(each.candidates for each in found),
        admitted=admitted,
        expired=admitted - rows,
        dropped_gradients=sum(each.dropped for each in found),
    )


def table_texts(tables: Mapping[str, TableRow]) -> Iterator[tuple[str, str]]:
    """Name and text of the figures of each table."""
    for name, row in tables.items():
        admitted = f"{count(row['rows'], 'row')} of {row['admitted']:,} admitted, {row['expired']:,} expired"
        dropped = count(row["dropped_gradients"], "gradient was", "gradients were")
        yield f"table {name}", f"{admitted}; {count(row['candidates'], 'candidate')}, {dropped} dropped"
