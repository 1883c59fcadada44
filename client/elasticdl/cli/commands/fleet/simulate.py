"""``elasticdl fleet simulate``: run a scenario under several policies, and print their results side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from elasticdl.cli.commands.fleet.page import check_folder, curves_of, jobs_of, write_page
from elasticdl.cli.display.consoles import plain_console, wrapped
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.controller.sim import POLICIES, Published, Result, read
from elasticdl.controller.sim import simulate as run
from elasticdl.shared.errors import UserError


def simulate(
    name: str,
    policies: Sequence[str],
    seed: int,
    record: Path | None,
    data: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run and print.

    Args:
        record: a file for the decisions of the policy ours.
        data: a folder with published files.
        html: a file for the results as a page.

    Raises:
        UserError: there is no such scenario or policy, or it can't be recorded or take files.
    """
    scenario, console = read(name), plain_console()
    if isinstance(scenario, Published):
        if record is not None or seed:
            raise UserError("--seed and --record are for scenarios that have their jobs in their file", usage=True)
        from elasticdl.cli.commands.fleet.published import simulate_published

        simulate_published(scenario, policies, data, html, as_json=as_json)
        return
    if data is not None:
        raise UserError("--data is for scenarios of published workloads: pollux-0.5 to pollux-2.0", usage=True)
    if unknown := [policy for policy in policies if policy not in POLICIES]:
        raise UserError(f"There is no policy {unknown[0]}. Policies are {', '.join(POLICIES)}.", usage=True)
    if record is not None and "ours" not in (policies or POLICIES):
        raise UserError("--record writes the decisions of the policy ours, which is not among the policies", usage=True)
    check_folder(html)
    results = [run(scenario, policy, seed, record) for policy in policies or POLICIES]
    columns, rows = ["", *(result.policy for result in results)], list(_rows(results))
    if html is not None:
        write_page(html, scenario.name, scenario.about, columns, rows, map(jobs_of, results), curves_of(results))
    if as_json:
        print_json(console, {"results": results})
        return
    console.print(wrapped(scenario.about, console))
    print_table(console, columns, rows)


def _rows(results: Sequence[Result]) -> Iterator[list[str]]:
    """One line per measure, one column per policy."""
    yield ["waiting until a worker trains, mean", *(f"{each.pending_mean_s:.1f} s" for each in results)]
    yield ["waiting until a worker trains, worst", *(f"{each.pending_worst_s:.1f} s" for each in results)]
    yield ["waiting for a worker pod, mean", *(_until_worker(each) for each in results)]
    yield ["jobs that never started", *(str(sum(not job.started for job in each.jobs)) for each in results)]
    if all(job.finished_s is not None for each in results for job in each.jobs):
        yield ["all jobs finished", *(f"{each.end_s:.0f} s" for each in results)]
    yield ["pods that had to leave", *(str(each.drained) for each in results)]
    for windows in zip(*(each.windows for each in results), strict=True):
        name = windows[0].name
        yield [f"{name}: requested CPU", *(f"{100 * each.requested:.1f} %" for each in windows)]
        yield [f"{name}: packing bound", *(f"{100 * each.bound:.1f} %" for each in windows)]
        yield [f"{name}: CPU of training workers", *(f"{100 * each.training:.1f} %" for each in windows)]
        yield [f"{name}: its packing bound", *(f"{100 * each.training_bound:.1f} %" for each in windows)]
        yield [f"{name}: Jain index", *(f"{each.jain:.3f}" for each in windows)]
        yield [f"{name}: jobs below their minimum", *(f"{each.below_min:.1f}" for each in windows)]
    for steps in zip(*(each.steps for each in results), strict=True):
        what = f"{steps[0].service} whole with {steps[0].wanted} pods after {steps[0].second:.0f} s"
        yield [what, *("never" if each.whole_s is None else f"{each.whole_s:.1f} s" for each in steps)]


def _until_worker(result: Result) -> str:
    """The mean over all jobs; one without a worker counts until the end."""
    waits = [result.end_s - job.submit_s if job.first_worker_s is None else job.first_worker_s for job in result.jobs]
    return f"{sum(waits) / max(len(waits), 1):.1f} s"
