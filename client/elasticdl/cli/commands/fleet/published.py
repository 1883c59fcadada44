"""``elasticdl fleet simulate`` with published workloads: mean times beside those of the publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from elasticdl.cli.commands.fleet.page import check_folder, write_page
from elasticdl.cli.display.consoles import plain_console, wrapped
from elasticdl.cli.display.output import print_json, print_table
from elasticdl.controller.sim import Published
from elasticdl.controller.sim.pollux import POLICIES, Cluster, Data, Outcome
from elasticdl.shared.errors import UserError

_PUBLISHED = ("pollux", "tiresias", "optimus")
_Times = Mapping[tuple[str, int], float]
"""(policy, workload) -> mean seconds from the submission of a job to its end."""


def simulate_published(
    scenario: Published, policies: Sequence[str], folder: Path | None, html: Path | None, *, as_json: bool
) -> None:
    """Run and print.

    Args:
        folder: a checkout of the published files instead of those of the package.
        html: a file for the results as a page.

    Raises:
        UserError: there is no such policy, load or workload.
    """
    if unknown := [policy for policy in policies if policy not in POLICIES]:
        raise UserError(f"There is no policy {unknown[0]}. Policies are {', '.join(POLICIES)}.", usage=True)
    console, cluster = plain_console(), Cluster(Data(folder))
    check_folder(html)
    outcomes = [
        cluster.simulate(policy, scenario.load, workload, scenario.pause_s)
        for policy in policies or POLICIES
        for workload in scenario.workloads
    ]
    stored = {
        (policy, workload): mean_s
        for (policy, load, workload), mean_s in Data().published().items()
        if load == scenario.load and workload in scenario.workloads
    }
    columns = ["", *(policies or POLICIES), *(f"{policy}, published" for policy in _PUBLISHED)]
    rows = list(_rows(scenario, list(policies or POLICIES), outcomes, stored))
    if html is not None:
        write_page(html, scenario.name, scenario.about, columns, rows)
    if as_json:
        published = [
            {"policy": policy, "workload": workload, "mean_jct_s": each} for (policy, workload), each in stored.items()
        ]
        results = [{"mean_jct_s": each.mean_jct_s, "outcome": each} for each in outcomes]
        print_json(console, {"results": results, "published": published})
        return
    console.print(wrapped(scenario.about, console))
    print_table(console, columns, rows)


def _rows(
    scenario: Published, policies: Sequence[str], outcomes: Sequence[Outcome], stored: _Times
) -> Iterator[list[str]]:
    simulated = {(each.policy, each.workload): each.mean_jct_s for each in outcomes}
    sources = [*((simulated, policy) for policy in policies), *((stored, policy) for policy in _PUBLISHED)]
    for workload in scenario.workloads:
        yield [f"workload {workload}", *(f"{times[policy, workload]:.1f} s" for times, policy in sources)]
    means = [
        sum(times[policy, each] for each in scenario.workloads) / len(scenario.workloads) for times, policy in sources
    ]
    yield ["mean", *(f"{each:.1f} s" for each in means)]
    pollux = means[len(policies)]
    yield ["beside Pollux, published", *(f"{100 * (each / pollux - 1):+.1f} %" for each in means)]
    restarts = [sum(each.restarts for each in outcomes if each.policy == policy) for policy in policies]
    yield ["restarts of jobs", *map(str, restarts), *("" for _ in _PUBLISHED)]
