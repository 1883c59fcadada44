"""Plots of EXPLAIN."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from elasticdl.shared.errors import UserError
from elasticdl.sql.plots import COLUMNS_MAX, bars_of, plot, plot_files

PERMUTATION = pa.table({"column": ["age", "$a_b$ 収"], "importance": [0.5, 2.0], "deviation": [0.1, 0.2]})
SHAP = pa.table({"age": [1.0, -3.0], "town": [0.5, 0.5], "base_value": [9.0, 9.0], "prediction": [9.0, 9.0]})


def test_bars_are_importances_or_mean_sizes_of_shapley_values() -> None:
    assert bars_of(PERMUTATION) == [("$a_b$ 収", 2.0, 0.2), ("age", 0.5, 0.1)]
    assert bars_of(SHAP) == [("age", 2.0, 0.0), ("town", 0.5, 0.0)]
    many = pa.table({f"c{number}": [float(number)] for number in range(100)})
    assert len(bars_of(many)) == COLUMNS_MAX
    assert bars_of(many)[0][0] == "c99"


def test_a_plot_is_png_or_svg_by_its_name(tmp_path: Path) -> None:
    files = plot_files(f"{tmp_path}/why.png, {tmp_path}/why.svg")
    for file in files:
        plot(SHAP, file, "pay@1")
    assert files[0].read_bytes().startswith(b"\x89PNG")
    text = files[1].read_text()
    assert ">age<" in text and ">pay@1<" in text and "Shapley" in text
    plot(SHAP, files[1], "pay@1")
    assert files[1].read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["why.png", "why.svg"]


def test_names_are_no_formulas(tmp_path: Path) -> None:
    plot(pa.table({"$a_b$": [1.0]}), tmp_path / "why.svg", "$x^")
    assert "$a_b$" in (tmp_path / "why.svg").read_text()


@pytest.mark.parametrize(("value", "message"), [("why.pdf", "no .png and no .svg"), ("no/folder/why.png", "no folder")])
def test_wrong_files_are_found_before_anything_runs(value: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plot_files(value)
