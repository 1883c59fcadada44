"""Draws docs/quality.svg: a panel per model, each run a dot, and the range of ``fit`` as a band."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import matplotlib as mpl
from benchmarks.quality.cases import Case
from benchmarks.quality.results import ASYNC, FIT, PSS, SYNC, Result, summarize
from benchmarks.quality.rows import WORKERS
from matplotlib import pyplot
from matplotlib.lines import Line2D

COLUMNS = 4
COLORS = {FIT: "#555555", ASYNC: "#c2410c", SYNC: "#1d4ed8", PSS: "#15803d"}
LABELS = {FIT: "fit", ASYNC: "asynchronous", SYNC: "synchronous", PSS: "ParameterServerStrategy"}


def plot(results: Sequence[Result], cases: Sequence[Case], path: Path) -> None:
    """Draw the first metric of each case, and write it as SVG."""
    mpl.use("svg")
    style: Any = {"svg.hashsalt": "quality", "svg.fonttype": "none", "font.size": 8, "axes.titlesize": 8}
    with mpl.rc_context(style):
        rows = -(-len(cases) // COLUMNS)
        figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(11, 2.5 * rows), layout="constrained")
        for axis, case in zip_longest(axes.flat, cases):
            if case is None:
                axis.set_axis_off()
            else:
                _panel(axis, results, case)
        handles = [Line2D([], [], marker="o", linestyle="", color=COLORS[m], label=LABELS[m]) for m in COLORS]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False)
        figure.savefig(path, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def _panel(axis: Any, results: Sequence[Result], case: Case) -> None:
    metric = case.metrics[0]
    groups = [(FIT, 0), *((mode, workers) for mode in (ASYNC, SYNC, PSS) for workers in WORKERS)]
    for place, (mode, workers) in enumerate(groups):
        summary = summarize(results, case.name, mode, workers, metric)
        if summary is None:
            continue
        if mode == FIT:
            axis.axhspan(summary.least, summary.greatest, color="#dddddd", zorder=0)
        axis.plot([place] * len(summary.values), summary.values, "o", markersize=4, color=COLORS[mode], alpha=0.8)
        axis.plot([place - 0.3, place + 0.3], [summary.median] * 2, color=COLORS[mode], linewidth=1.2)
    axis.set_xticks(range(len(groups)), ["fit", *(str(workers) for _, workers in groups[1:])])
    axis.set_xlabel("workers")
    axis.set_title("\n".join(textwrap.wrap(f"{case.title.replace('`', '')}: {metric}", 36)))
    axis.spines[["top", "right"]].set_visible(False)
