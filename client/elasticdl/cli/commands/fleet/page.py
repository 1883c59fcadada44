"""``elasticdl fleet simulate --html``: the results of a simulation as one page, with curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from elasticdl.controller.sim import Result
from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.views.outputs.page import Page, Table


def check_folder(path: Path | None) -> None:
    """Before a long simulation. Raises ``UserError``: there is no folder for the page."""
    if path is not None and not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent} for the page {path.name}.", usage=True)


def write_page(
    path: Path,
    name: str,
    about: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    tables: Iterable[Table] = (),
    curves: Mapping[str, Sequence[tuple[float, float]]] | None = None,
) -> None:
    """Write the page of a scenario: its results by policy, more tables, and curves.

    Raises:
        UserError: the file can't be written.
    """
    results = Table(title="Results", columns=columns, rows=rows, numbers=frozenset(range(1, len(columns))))
    page = Page(
        job=name,
        state="simulated",
        summary=[("scenario", about)],
        wall_time=None,
        texts={},
        curves=curves or {},
        tables=[results, *tables],
        limits=(0.0, 100.0),
        made=f"elasticdl {version('elasticdl')}, {datetime.now():%Y-%m-%d %H:%M}",
    )
    with file_errors(f"can't write {path}"), replacing(path) as file:
        file.write(page.html().encode())


def curves_of(results: Sequence[Result]) -> dict[str, list[tuple[float, float]]]:
    """Percentages of the CPU by second, the same one of all policies side by side."""
    return {
        f"{each.policy}: {what}, percent": [(sample[0], 100 * sample[place]) for sample in each.samples]
        for place, what in ((1, "requested CPU"), (2, "CPU of training workers"))
        for each in results
    }


def jobs_of(result: Result) -> Table:
    """When each job submitted under a policy began to train, and when it finished."""
    return Table(
        title=f"Jobs under the policy {result.policy}",
        columns=("job", "submitted, s", "waited for a worker that trains, s", "finished, s"),
        rows=[
            (
                each.name,
                f"{each.submit_s:.1f}",
                f"{each.pending_s:.1f}" if each.started else "never trained",
                "" if each.finished_s is None else f"{each.finished_s:.1f}",
            )
            for each in result.jobs
        ],
        numbers=frozenset({1, 2, 3}),
    )
