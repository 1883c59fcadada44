"""How stale the gradients of a job were, for its report and its status."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticdl.master.core import State
from elasticdl.master.core.training.staleness import StalenessTotals
from elasticdl.shared.quantities import count


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
