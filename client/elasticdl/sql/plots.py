"""Plots of EXPLAIN: a bar for each column, as PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.shared.errors import UserError, file_errors
from elasticdl.shared.storage.atomic import replacing
from elasticdl.sql.statements import Value

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS_MAX = 40
"""Bars of a plot; of more columns the most important ones."""
_NO_COLUMNS = ("base_value", "prediction")
_NAME_CHARS_MAX = 40
_KINDS = {".png": "png", ".svg": "svg"}


def plot_files(value: Value) -> list[Path]:
    """The files of ``explain.plot``.

    Raises:
        UserError: one has another suffix or no folder, or the library of plots is not installed.
    """
    names = value if isinstance(value, tuple) else str(value or "").split(",")
    files = [Path(str(name).strip()).expanduser() for name in names if str(name).strip()]
    for file in files:
        if file.suffix.lower() not in _KINDS:
            raise UserError(f"explain.plot: {file} is no .png and no .svg file", hint="Name it why.png or why.svg.")
        if not file.absolute().parent.is_dir():
            raise UserError(f"explain.plot: there is no folder {file.parent}")
    if files:
        _figure()
    return files


def bars_of(importances: pa.Table) -> list[tuple[str, float, float]]:
    """Column, length of its bar, and deviation; the longest first.

    Args:
        importances: of a permutation; or Shapley values, of which the mean size counts.
    """
    import pyarrow.compute as pc

    if "importance" in importances.column_names:
        names = ("column", "importance", "deviation")
        found = list(zip(*(importances.column(name).to_pylist() for name in names), strict=True))
    else:
        columns = [name for name in importances.column_names if name not in _NO_COLUMNS]
        found = [(name, float(pc.mean(pc.abs(importances.column(name))).as_py() or 0), 0.0) for name in columns]
    return sorted(found, key=lambda bar: -bar[1])[:COLUMNS_MAX]


def plot(importances: pa.Table, file: Path, title: str) -> None:
    """Write a plot, which replaces the file. The same values give the same SVG."""
    import matplotlib as mpl

    bars = bars_of(importances)[::-1]
    figure = _figure()(figsize=(8, 1.2 + 0.3 * len(bars)), layout="constrained")
    axes = figure.subplots()
    deviations = [deviation for _, _, deviation in bars]
    names = [_shown(name) for name, _, _ in bars]
    axes.barh(range(len(bars)), [length for _, length, _ in bars], xerr=deviations if any(deviations) else None)
    axes.set_yticks(range(len(bars)), names, parse_math=False)
    is_permutation = "importance" in importances.column_names
    axes.set_xlabel("growth of the loss when shuffled" if is_permutation else "mean size of Shapley values")
    axes.set_title(title, parse_math=False)
    axes.axvline(0, color="black", linewidth=0.8)
    kind = _KINDS[file.suffix.lower()]
    metadata = {"Date": None} if kind == "svg" else None
    with (
        file_errors(f"{file} can't be written"),
        mpl.rc_context({"svg.hashsalt": "elasticdl", "svg.fonttype": "none"}),
        replacing(file.absolute()) as target,
    ):
        figure.savefig(target, format=kind, metadata=metadata)


def _figure() -> Any:
    """Matplotlib's class of figures, which needs no display."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        hint = "Install it: pip install 'elasticdl[plots]'."
        raise UserError("plots need the package matplotlib", hint=hint) from error
    return Figure


def _shown(name: str) -> str:
    return name if len(name) <= _NAME_CHARS_MAX else f"{name[: _NAME_CHARS_MAX - 1]}…"
