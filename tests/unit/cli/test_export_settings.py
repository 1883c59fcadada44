"""Where the tables of an exported model are, and what can't be combined with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.ps.example import signature, spec

from elasticdl.cli.jobs.export_settings import ExportSettings
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.spec import ExportTables, Limits

MODEL, PARQUET = ExportTables.MODEL, ExportTables.PARQUET


@pytest.mark.parametrize(
    ("asked", "of_job", "bytes_max", "expected"),
    [
        ("", ExportTables.AUTO, 1 << 20, MODEL),
        ("", ExportTables.AUTO, 100, PARQUET),
        ("", PARQUET, 1 << 20, PARQUET),
        ("model", PARQUET, 100, MODEL),
        ("parquet", MODEL, 1 << 20, PARQUET),
        ("auto", MODEL, 100, PARQUET),
    ],
)
def test_the_flag_decides_and_else_the_job(
    asked: str, of_job: ExportTables, bytes_max: int, expected: ExportTables
) -> None:
    job = replace(spec("memory://job"), export_tables=of_job, limits=Limits(export_bytes_max=bytes_max))
    assert ExportSettings(tables=asked).tables_of(job, signature()) is expected
    assert ExportSettings(tables=asked).tables_of(job, replace(signature(), tables=())) is MODEL


def test_a_table_without_input_dim_has_no_size() -> None:
    a, b = signature().tables
    open_ended = replace(signature(), tables=(a, replace(b, input_dim=0)))
    assert signature().weights_bytes == 4 * (23 + 40 * 4 + 17 * 2)
    assert open_ended.weights_bytes is None and not open_ended.fits(1 << 60)
    assert ExportSettings().tables_of(spec("memory://job"), open_ended) is PARQUET


def test_the_best_model_is_whole() -> None:
    job = replace(spec("memory://job"), export_tables=PARQUET)
    assert ExportSettings(best=True).tables_of(job, signature()) is MODEL
    with pytest.raises(UserError, match="--best and --export_tables=parquet"):
        ExportSettings(best=True, tables="parquet").check()


def test_the_flag_of_a_job_needs_an_output() -> None:
    flags = TrainFlags(model_def="model.custom_model", training_data="data", export_tables=PARQUET)
    with pytest.raises(UserError, match="--export_tables=parquet needs --output"):
        flags.check()
    replace(flags, output="out").check()
