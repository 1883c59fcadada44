"""SQL from Python and in notebooks. No job runs here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.api import load_ipython_extension, sql
from elasticdl.shared.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "ELASTICDL_RUN_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "sales.csv").write_text("day,paid\nmonday,2\nsunday,3\n")
    return tmp_path


def test_the_result_of_the_last_statement_is_a_data_frame(folder: Path) -> None:
    found = sql("SHOW TABLES; SELECT day, paid * 2 AS twice FROM sales ORDER BY day", database=folder / "shop")
    assert found.kind == "select"
    assert found.to_pandas().to_dict("list") == {"day": ["monday", "sunday"], "twice": [4, 6]}
    assert sql("SELECT * FROM sales", database=folder / "shop", rows_max=1, shows=False).to_pandas().shape == (1, 2)


def test_wrong_statements_show_their_place_and_run_nothing(folder: Path) -> None:
    with pytest.raises(UserError) as wrong:
        sql("SELECT * FROM sales LABEL payd INTO m", database=folder / "shop")
    assert "line 1, column 27: the SELECT has no column 'payd'." in str(wrong.value)
    assert "^^^^ Did you mean 'paid'?" in str(wrong.value)


def test_a_cell_of_a_notebook_is_a_script_over_the_databases_of_its_first_line(folder: Path) -> None:
    registered: dict[str, Callable[[str, str], Any]] = {}

    class Notebook:
        def register_magic_function(self, function: Callable[[str, str], Any], kind: str, name: str) -> None:
            assert kind == "cell"
            registered[name] = function

    load_ipython_extension(Notebook())
    shown = registered["sql"](f"'{folder / 'shop'}'", "SELECT count(*) AS days\nFROM sales;\n")
    assert "<td>2</td>" in shown._repr_html_()
