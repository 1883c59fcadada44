"""The command ``elasticdl sql`` without jobs: where statements come from, exit codes, and the shell."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticdl.cli.sql.command import run_script, run_sql, session_of
from elasticdl.cli.sql.jobs import CommandJobs
from elasticdl.cli.sql.shell import catalogue_of, run_shell
from elasticdl.shared.errors import UserError
from elasticdl.sql.attached import Attached
from elasticdl.sql.completion import completions
from elasticdl.sql.jobs import EndedJob, JobOfTraining


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for table, rows in (("shop/sales", "day,paid\nmonday,2\n"), ("people/staff", "name\nAda\n")):
        file = tmp_path / f"{table}.csv"
        file.parent.mkdir()
        file.write_text(rows)
    return tmp_path


def run(folder: Path, *statements: str, files: tuple[Path, ...] = (), as_json: bool = False) -> int:
    databases = [str(folder / name) for name in ("shop", "people")]
    return run_sql(statements, files, databases, folder / "jobs", {}, as_json=as_json)


def test_statements_come_from_options_files_and_standard_input(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.sql").write_text("SELECT name FROM staff;", encoding="utf-8-sig")
    assert run(folder, "SELECT day FROM sales", files=(folder / "a.sql",)) == 0
    assert capsys.readouterr().out == "day\nmonday\nname\nAda\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT paid FROM sales"))
    assert run(folder) == 0
    assert capsys.readouterr().out == "paid\n2\n"
    with pytest.raises(UserError, match=r"--file=.*none\.sql can't be read"):
        run(folder, files=(folder / "none.sql",))


def test_results_are_json_and_a_wrong_script_runs_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder, "SHOW MODELS; SELECT * FROM sales", as_json=True) == 0
    models, sales = json.loads(capsys.readouterr().out)["results"]
    assert (models["rows"], sales["rows"]) == ([], [{"day": "monday", "paid": 2}])
    assert run(folder, "SELECT * FROM sales; SHOW MODLES") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Did you mean SHOW MODELS?" in shown.err


@pytest.mark.parametrize("begins", [False, True])
def test_only_a_training_that_is_there_can_be_resumed(
    folder: Path, capsys: pytest.CaptureFixture[str], begins: bool
) -> None:
    class Stopped(CommandJobs):
        def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
            raise KeyboardInterrupt

        def find(self, output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
            return JobOfTraining(job="m-1", state="stopped", resume="elasticdl resume m-1") if begins else None

    script = "SELECT i % 7 AS x, i % 2 AS y FROM range(40) t(i) LABEL y INTO m"
    with Attached([str(folder / "shop")]) as databases:
        session = replace(session_of(databases, folder / "jobs", {}), jobs=Stopped(folder / "jobs"))
        assert run_script(session, script, [], shows=True) == 130
    assert ("If the training is resumed" in capsys.readouterr().err) is begins


@pytest.fixture
def typed() -> Iterator[io.StringIO]:
    """What the user types into the shell; it is sent when the shell asks."""
    input_module = pytest.importorskip("prompt_toolkit.input")
    application = pytest.importorskip("prompt_toolkit.application")
    output = pytest.importorskip("prompt_toolkit.output")
    with (
        input_module.create_pipe_input() as pipe,
        application.create_app_session(input=pipe, output=output.DummyOutput()),
    ):
        yield pipe


def test_the_shell_takes_several_lines_and_survives_errors(
    folder: Path, typed: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in (
        "SELECT *\rFROM sales;\r",  # Enter begins a line until there is a semicolon.
        "SELECT * FROM sale;\r",
        "SELECT nothing\x03",  # Ctrl-C drops it.
        "SHOW MODELS;\r",
        "\x04",
    ):
        typed.send_text(text)  # type: ignore[attr-defined]
    with Attached([str(folder / "shop")]) as databases:
        assert run_shell(session_of(databases, folder / "jobs", {})) == 0
    shown = capsys.readouterr()
    assert "day\tpaid\nmonday\t2\n" in shown.out
    assert "Did you mean 'sales'?" in shown.err
    history = folder / "jobs" / "sql_history"
    assert history.stat().st_mode & 0o777 == 0o600
    assert "+SHOW MODELS;" in history.read_text()


def test_the_shell_completes_what_its_databases_and_models_have(folder: Path) -> None:
    with Attached([str(folder / "shop"), str(folder / "people")]) as databases:
        catalogue = catalogue_of(session_of(databases, folder / "jobs", {}))
        assert completions("SELECT * FROM sa", catalogue) == (["sales"], 2)
        assert completions("SELECT * FROM sales LABEL pa", catalogue) == (["paid"], 2)
        assert "model.hidden_units" in completions("SELECT * FROM sales TO TRAIN DCN WITH model.hid", catalogue)[0]
