"""Plots of timelines."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from tests.cluster.scenarios.timeline import Timeline

CPU_M = 80
"""Thousandths of a CPU of the test cluster's node that stand for one CPU."""


def plot_held_cpus(timeline: Timeline, names: Mapping[str, str], capacity: int, file: Path) -> None:
    """Draw how many CPUs each owner holds, stacked, over time.

    Args:
        timeline: what happened.
        names: owner -> its name in the legend, in the order of the stack.
        capacity: CPUs of the cluster, in thousandths.
        file: where to write the picture.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = file.name
    import matplotlib.pyplot as plt

    start_s, end_s = timeline.states[0].time_s, timeline.states[-1].time_s
    steps = [step for owner in names for step in pairwise([(start_s, 0), *timeline.bound(owner)])]
    changes = (time_s for (_, former), (time_s, value) in steps if value != former)
    moments = sorted({start_s, end_s, *changes})
    layers = [[_value(timeline.bound(owner), moment) / CPU_M for moment in moments] for owner in names]
    figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
    seconds = [moment - start_s for moment in moments]
    axes.stackplot(seconds, layers, labels=list(names.values()), step="post")
    axes.axhline(capacity / CPU_M, color="black", linewidth=0.8, linestyle="--", label="capacity")
    axes.set(xlabel="seconds", ylabel="requested CPUs", xlim=(0, end_s - start_s), ylim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None})
    plt.close(figure)


def _value(steps: list[tuple[float, int]], moment: float) -> int:
    """The value of a step function at a moment."""
    return next((value for time_s, value in reversed(steps) if time_s <= moment), 0)
