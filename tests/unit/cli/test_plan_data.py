"""The data of a job, from the flags to the lines that name its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.submission.flag_items import parse_columns
from elasticdl.cli.submission.plan_data import plan_data, reader_function
from elasticdl.cli.submission.submit import find_model
from elasticdl.shared.data.indices import IndexFile
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.spec import ModelSpec
from elasticdl.shared.storage import to_uri

COLUMNS = "def feed_batch(records, mode, metadata): ...\n"
LINES = "def feed(dataset, mode, metadata): ...\n"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelSpec:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(COLUMNS)
    return ModelSpec(path=str(tmp_path / "model.py"), symbol="custom_model")


def lines(model: ModelSpec, **flags: Any) -> list[str]:
    told: list[str] = []
    plan_data(TrainFlags(model_def="model.py", training_data="a.csv", **flags), model, told.append)
    return told


def test_each_column_has_a_line_and_many_are_grouped_by_type(model: ModelSpec) -> None:
    Path("a.csv").write_text("id,zip\n1,x\n,y\n")
    assert lines(model, fill_missing="id=0", columns="zip, id") == [
        "Reading a.csv",
        "Columns:",
        "  zip: string",
        "  id: int64 (1 missing, filled with 0)",
    ]
    names = [f"c{number}" for number in range(20)]
    Path("a.csv").write_text(f"{','.join(names)},s\n{'1,' * 20}x\n")
    assert lines(model)[2:] == ["  c0, c1, c2, c3, c4, c5 and 14 more: int64", "  s: string"]


def test_files_that_another_job_has_indexed_are_counted(model: ModelSpec, tmp_path: Path) -> None:
    Path("data").mkdir()
    for name in "abc":
        Path("data", f"{name}.csv").write_text("x\n1\n")

    def shown() -> list[str]:
        told: list[str] = []
        flags = TrainFlags(model_def="model.py", training_data="data")
        data, _ = plan_data(flags, model, told.append, shared_folder=to_uri(tmp_path / "jobs"))
        if data.shared is not None and isinstance(data.indices, IndexFile):
            data.shared.save(data.indices)
        return [line for line in told if line not in ("Reading data", "Columns:", "  x: int64")]

    assert shown() == []
    assert shown() == ["No file has changed since another job indexed them. Using its index."]
    Path("data", "c.csv").write_text("x\n23\n")
    assert shown() == ["Read 1 of 3 files. Using the index of another job for the other 2."]


def test_parameters_of_a_reader_need_a_reader(model: ModelSpec) -> None:
    flags = TrainFlags(model_def="model.py", training_data="a.csv", data_reader_params="x=1")
    with pytest.raises(UserError, match=r"--data_reader_params has no effect.*model.py defines no custom_data_reader"):
        reader_function(flags, model)


def test_one_column_that_may_be_several_is_pointed_out(model: ModelSpec) -> None:
    Path("a.csv").write_text("id;zip\n1;x\n")
    hint = "There is only one column. If ';' separates the columns: --csv_delimiter=';'"
    assert lines(model)[1:] == [hint, "Columns:", "  id;zip: string"]
    assert lines(model, csv_delimiter=";")[1:] == ["Columns:", "  id: int64", "  zip: string"]


def test_a_feed_of_lines_takes_any_line_and_no_options_of_columns(model: ModelSpec) -> None:
    Path("a.csv").write_text(f"id,x\n,0.5\n1,{(1 << 53) + 1}\n")
    for text in (COLUMNS, "from somewhere import *\n"):
        Path("model.py").write_text(text)
        with pytest.raises(UserError):
            lines(model)
    Path("model.py").write_text(LINES)
    assert lines(model)[1:] == ["Columns:", "  id: int64", "  x: float64"]
    with pytest.raises(UserError, match="--fill_missing has no effect") as refused:
        lines(model, fill_missing="id=0")
    assert "feed_batch" in refused.value.hint


def test_items_of_columns() -> None:
    assert parse_columns("fill_missing", "") == {}
    assert parse_columns("fill_missing", "a b=1,c=x,y,d==") == {"a b": "1", "c": "x,y", "d": "="}
    for text in ("a", "=1", "a=1,a=2"):
        with pytest.raises(UserError, match="--fill_missing"):
            parse_columns("fill_missing", text)


def test_a_model_file_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "\udcff.py").write_text("def custom_model(): ...\n")
    with pytest.raises(UserError, match=r"the name of .*xff\.py is not UTF-8"):
        find_model(f"{tmp_path}/\udcff.py", "")
