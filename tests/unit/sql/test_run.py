"""Statements from their text to their result, on the shipped tables. Jobs are a fake; everything else is what ships."""

from __future__ import annotations

import datetime
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.unit.sql.session_for_tests import Display, Jobs, jobs_of, rows, run, shown

from elasticdl.shared.errors import ElasticDLError, UserError
from elasticdl.sql.attached import Attached
from elasticdl.sql.jobs import EndedJob, JobOfTraining
from elasticdl.sql.parsing import render
from elasticdl.sql.registry import Registry
from elasticdl.sql.run import Session
from elasticdl.sql.statements import StatementError

TRAINED = "SELECT age, department, income FROM employee LABEL income INTO pay"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with Attached() as databases:
        yield Session(databases=databases, registry=Registry(tmp_path / "models"), jobs=Jobs(), display=Display())


def test_a_training_is_a_job_whose_model_is_registered(session: Session) -> None:
    text = f"{TRAINED} WITH num_epochs=3, train.batch_size=32, use_async=false, validation.metrics='r2'"
    (result,) = run(session, text)
    assert (result.kind, result.model, result.job, result.metrics) == ("train", "pay@1", "pay-1", {"r2": 0.25})
    assert [(name, use) for name, use, _ in result.columns][:2] == [("income", "label"), ("age", "number")]
    ((command, flags),) = jobs_of(session).started
    assert command == "train"
    assert (flags["num_epochs"], flags["minibatch_size"], flags["use_async"]) == (3, 32, "false")
    assert Path(flags["training_data"]).is_dir()
    version = session.registry.versions("pay")[0]
    assert version.record.sql == text
    assert version.record.rows == 4_000
    assert session.registry.training(version).export == flags["output"]
    assert any("department" in line and "text" in line for line in shown(session))
    assert shown(session)[-1].startswith("Registered pay@1.")


def test_the_models_are_listed_described_and_dropped(session: Session) -> None:
    run(session, f"{TRAINED}; {TRAINED}")
    listed, sql, described = run(session, "SHOW MODELS; SHOW TRAIN pay@1; DESCRIBE MODEL pay")
    assert [row[:2] for row in rows(listed)] == [("pay@1", "registered"), ("pay@2", "registered")]
    assert sql.text == TRAINED
    facts = dict(rows(described))
    assert (facts["model"], facts["label"], facts["rows"], facts["job"]) == ("pay@2", "income", "4,000", "pay-1")
    assert facts["column age"].startswith("number")
    run(session, "DROP MODEL pay@1; DROP MODEL pay")
    assert rows(run(session, "SHOW MODELS")[0]) == ()


def test_a_job_that_failed_before_it_began_leaves_nothing(session: Session) -> None:
    jobs_of(session).end = ElasticDLError("the model is wrong")
    with pytest.raises(ElasticDLError, match="the model is wrong"):
        run(session, TRAINED)
    assert session.registry.names() == []


def test_an_interrupted_training_is_listed_and_registered_after_its_resume(session: Session) -> None:
    jobs = jobs_of(session)

    class Interrupted(KeyboardInterrupt):
        pass

    jobs.end = Interrupted()

    def find(output: str, options: Mapping[str, Any]) -> JobOfTraining | None:
        return JobOfTraining(job="pay-1", state=state, resume=resume, metrics={"r2": 0.5})

    jobs.find = find  # type: ignore[method-assign]
    state, resume = "stopped", "elasticdl resume pay-1"
    with pytest.raises(Interrupted):
        run(session, TRAINED)
    (row,) = rows(run(session, "SHOW MODELS")[0])
    assert row[:2] == ("pay", "stopped: elasticdl resume pay-1")
    with pytest.raises(StatementError, match="there is no model 'pay'"):
        run(session, "SHOW TRAIN pay")
    state, resume = "succeeded", ""
    assert run(session, "SHOW TRAIN pay")[0].text == TRAINED
    (row,) = rows(run(session, "SHOW MODELS")[0])
    assert row[:2] == ("pay@1", "registered")


def test_predictions_are_written_beside_the_selected_rows(session: Session) -> None:
    run(session, TRAINED)
    (result,) = run(session, "SELECT id, age, department FROM employee LIMIT 5 TO PREDICT guesses.pay USING pay@1")
    assert (result.kind, result.model, result.into, result.rows) == ("predict", "pay@1", "guesses", 5)
    command, flags = jobs_of(session).started[-1]
    assert command == "predict"
    assert flags["model"] == session.registry.training(session.registry.versions("pay")[0]).export
    (selected,) = run(session, "SELECT * FROM guesses")
    assert selected.table is not None
    assert selected.table.names == ("id", "age", "department", "pay")
    assert len(selected.table.rows) == 5
    assert list((session.registry.root / ".work").iterdir()) == []


@dataclass
class Meanwhile(Jobs):
    """Jobs during which another program runs a statement in a SQLite file."""

    file: Path = Path()
    statement: str = ""

    def run(self, command: str, flags: Mapping[str, Any], report: Path) -> EndedJob:
        with closing(sqlite3.connect(self.file)) as connection, connection:
            connection.execute(self.statement)
        return super().run(command, flags, report)


def test_predictions_that_a_database_does_not_take_are_kept(session: Session, tmp_path: Path) -> None:
    run(session, TRAINED)
    file = tmp_path / "people.sqlite"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS id, 30 AS age, 'Sales' AS department")
    jobs = Meanwhile(file=file, statement="CREATE VIEW seen AS SELECT * FROM people")
    other = replace(session, databases=Attached([str(file)]), jobs=jobs)
    with pytest.raises(UserError, match=r"seen.* can't be written .*VIEW") as found:
        run(other, "SELECT * FROM people TO PREDICT seen.pay USING pay@1")
    kept = re.search(r"--database=(\S+)", str(found.value))
    assert kept is not None
    rows = run(replace(session, databases=Attached([kept[1]])), "SELECT * FROM predictions")[0].table
    assert rows is not None
    assert rows.names == ("id", "age", "department", "pay")


@pytest.mark.parametrize(
    ("query", "into", "message"),
    [
        ("SELECT * FROM theirs", "theirs", "the SELECT reads the table theirs, which the result would replace"),
        ("SELECT a.* FROM other o, main.theirs a", "theirs", "the SELECT reads the table theirs"),
        ("SELECT theirs.* FROM (other CROSS JOIN theirs)", "main.theirs", "the SELECT reads the table main.theirs"),
        (
            "SELECT age, department AS theirs FROM other",
            "theirs",
            "there is a table theirs that no statement has written",
        ),
        ("SELECT * FROM theirs", "seen", "the table seen can't be replaced: it is a view"),
    ],
)
def test_a_table_that_must_not_be_replaced_is_found_before_the_job(
    session: Session, tmp_path: Path, query: str, into: str, message: str
) -> None:
    run(session, TRAINED)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("CREATE TABLE theirs AS SELECT 30 AS age, 'Sales' AS department, 1 AS income")
        connection.execute("CREATE TABLE other AS FROM theirs; CREATE VIEW seen AS FROM theirs")
    other = replace(session, databases=Attached([str(tmp_path / "people.duckdb")]))
    jobs_of(session).started.clear()
    for text in (f"TO PREDICT {into}.p USING pay", f"TO EVALUATE pay INTO {into}", f"TO EXPLAIN pay INTO {into}"):
        for plan in ("", "EXPLAIN PLAN "):
            with pytest.raises(StatementError, match=message):
                run(other, f"{plan}{query} {text}")
    assert jobs_of(session).started == []
    other.databases.close()


def test_a_table_is_replaced_if_a_statement_has_written_it_or_is_told_to(session: Session, tmp_path: Path) -> None:
    run(session, TRAINED)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT 30 AS age, 'Sales' AS department; CREATE TABLE p AS SELECT 1 AS a"
        )
    other = replace(session, databases=Attached([str(tmp_path / "people.duckdb")]))
    predict = "SELECT * FROM people TO PREDICT p.pay USING pay"
    run(
        other,
        f"{predict} WITH table.replace = true; {predict}; SELECT *, 1 AS income FROM p TO EVALUATE pay INTO scores",
    )
    other.databases.close()
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("CREATE VIEW behind AS SELECT * FROM p")
    for read in ("p", "behind", "(SELECT * FROM behind)"):
        with pytest.raises(StatementError, match="the SELECT reads the table p"):
            run(other, f"SELECT * FROM {read} TO PREDICT p USING pay WITH table.replace = true")
    other.databases.close()


def test_tables_with_the_names_of_columns_do_not_choose_the_database(session: Session, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "words.duckdb")) as connection:  # Tables with the names of columns and keywords.
        connection.execute('CREATE TABLE age AS SELECT 1 AS a; CREATE TABLE "select" AS SELECT 1 AS a')
    with closing(sqlite3.connect(tmp_path / "staff.sqlite")) as file, file:
        file.execute("CREATE TABLE staff AS SELECT 40 AS age")
    places = [str(tmp_path / name) for name in ("words.duckdb", "staff.sqlite")]
    with Attached(places) as databases:
        other = replace(session, databases=databases)
        for name in ("staff", "main.staff", 'main."STAFF"'):
            assert rows(run(other, f"SELECT age FROM {name}")[0]) == ((40,),)
        with pytest.raises(StatementError) as caught:
            run(other, "SELECT * FROM age JOIN staff ON true LABEL age INTO m")
        (fault,) = caught.value.faults
        assert fault.message == f"the table 'staff' is in {places[1]}, and the SELECT reads {places[0]}."
        assert fault.position.column == 24


def test_enums_and_lists_of_one_length_are_texts_and_lists(session: Session, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "typed.duckdb")) as connection:
        connection.execute("CREATE TYPE kind AS ENUM ('a', 'b')")
        connection.execute(
            "CREATE TABLE typed AS SELECT (CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END)::kind AS k, "
            "[i % 5, i % 7]::DOUBLE[2] AS xs, "
            "CASE WHEN i % 3 = 0 THEN ['b']::kind[] ELSE [] END AS ks, i % 3 AS y FROM range(40) t(i)"
        )
    with Attached([str(tmp_path / "typed.duckdb")]) as databases:
        other = replace(session, databases=databases)
        trained = run(other, "SELECT * FROM typed LABEL y INTO m; SELECT * FROM typed LABEL k INTO m")
        assert [name for name, use, _ in trained[0].columns if use == "left out"] == []
        assert "classification: text label" in str(trained[1].columns)
        run(other, "SELECT * FROM typed TO PREDICT guesses.y USING m@1")
        assert len(rows(run(other, "SELECT k, xs, y FROM guesses WHERE k = 'a' AND len(xs) = 2")[0])) == 20


@pytest.mark.parametrize("place", ["", "staff.sqlite"])
@pytest.mark.parametrize(
    ("select", "column"),
    [
        ("SELECT age FRM employee", 16),
        ("SELECT ag FROM employee", 8),
        ("SELECT age FROM employee x y", 28),
        ("SELECT .age FROM employee", 8),
        ("SELECT age, 1.5 2.5 FROM employee", 17),
    ],
)
def test_what_a_database_does_not_understand_has_a_place(
    session: Session, tmp_path: Path, place: str, select: str, column: int
) -> None:
    if place:
        with closing(sqlite3.connect(tmp_path / place)) as file, file:
            file.execute("CREATE TABLE employee AS SELECT 40 AS age, 1 AS income")
    with Attached([str(tmp_path / place)] if place else []) as databases:
        for clauses in ("", " LABEL income INTO m"):
            with pytest.raises(StatementError, match="the query fails") as caught:
                run(replace(session, databases=databases), select + clauses)
            assert [fault.position.column for fault in caught.value.faults] == [column]


def test_a_plan_of_an_explanation_has_no_job(session: Session) -> None:
    (*_, plan) = run(session, f"{TRAINED}; EXPLAIN PLAN SELECT * FROM employee TO EXPLAIN pay")
    assert plan.text.startswith("TO EXPLAIN runs no job")


def test_one_bad_file_of_a_folder_is_named_by_the_statements_that_read_it(session: Session, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "good.csv").write_text("a,b\n1,2\n")
    (folder / "v1.bad.parquet").write_text("no Parquet")
    other = replace(session, databases=Attached([str(folder)]))
    tables, found = run(other, "SHOW TABLES; SELECT * FROM good")
    assert [row[0] for row in rows(tables)] == ["good", "v1.bad"]
    assert rows(found) == ((1, 2),)
    for text in ("SELECT * FROM v1.bad", "DESCRIBE v1.bad", "SELECT * FROM good TO PREDICT v1.bad.p USING pay"):
        if "PREDICT" in text:
            run(session, TRAINED)
        with pytest.raises(UserError, match=r"the table 'v1\.bad' can't be read from .*v1\.bad\.parquet"):
            run(other, text)


def test_a_table_whose_name_has_a_dot_is_described(session: Session, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(
            'CREATE TABLE "a.b" AS SELECT 1 AS x; CREATE SCHEMA c; CREATE TABLE c."d.e" AS SELECT 2 AS y'
        )
    other = replace(session, databases=Attached([str(tmp_path / "people.duckdb")]))
    for name, column in (('"a.b"', "x"), ("a.b", "x"), ('c."d.e"', "y")):
        assert rows(run(other, f"DESCRIBE {name}")[0]) == ((column, "int32"),)


def test_columns_of_the_validation_select_are_checked_before_rows_are_read(session: Session) -> None:
    for select, message in (
        ("SELECT age, income FROM employee", "validation.select has no column 'department'"),
        ("SELECT * FROM employe", "validation.select: the query fails"),
    ):
        with pytest.raises(StatementError, match=message) as caught:
            run(session, f"EXPLAIN PLAN {TRAINED} WITH validation.select = '{select}'")
        assert caught.value.faults[0].position.column > len(TRAINED)


def test_metrics_are_shown_and_written(session: Session) -> None:
    run(session, TRAINED)
    evaluated, written = run(
        session, "SELECT * FROM employee TO EVALUATE pay LABEL income INTO scores; SELECT * FROM scores"
    )
    assert rows(evaluated) == (("val_loss", 0.5), ("r2", 0.25))
    assert rows(written) == ((0.5, 0.25),)
    with pytest.raises(UserError, match="was trained with LABEL income, not age"):
        run(session, "SELECT * FROM employee TO EVALUATE pay LABEL age")


def test_a_training_starts_from_the_weights_of_another_model(session: Session) -> None:
    run(session, f"{TRAINED}; {TRAINED} USING pay@1")
    first = session.registry.training(session.registry.versions("pay")[0])
    assert jobs_of(session).started[-1][1]["initial_model"] == first.export
    run(session, f"SELECT age, department FROM employee TO PREDICT t USING '{first.folder}'")
    assert jobs_of(session).started[-1][1]["model"] == first.export


def test_a_plan_runs_nothing_and_writes_nothing(session: Session) -> None:
    (result,) = run(session, f"EXPLAIN PLAN {TRAINED} WITH num_workers=3")
    assert jobs_of(session).started == []
    assert not session.registry.root.exists()
    assert result.text.startswith("# elasticdl train\njob_name: pay\n")
    assert "num_workers: 3\n" in result.text
    assert [row[0] for row in rows(result)] == ["income", "age", "department"]


def test_all_wrong_names_are_shown_at_once_with_their_places(session: Session) -> None:
    text = "SELECT * FROM employee TO TRAIN DNNRegresor WITH num_epoch=3 COLUMN EMBEDING(age, 3) LABEL incme INTO m"
    with pytest.raises(StatementError) as caught:
        run(session, text)
    lines = render(caught.value, text).splitlines()
    assert [line.strip("^ ") for line in lines[2::3]] == [
        "Did you mean 'DNNRegressor'?",
        "Did you mean num_epochs?",
        "Did you mean 'EMBEDDING'?",
        "Did you mean 'income'?",
    ]


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("SELECT * FROM employe", "there is no table 'employe'. Did you mean 'employee'?", 15),
        (
            "SELECT * FROM iris.trian LABEL class INTO m",
            "there is no table 'iris.trian'. Did you mean 'iris.train'?",
            15,
        ),
        ("SELECT * FROM employee TO PREDICT t USING pai", "there is no model 'pai'. No model is registered yet.", 43),
    ],
)
def test_unknown_tables_and_models_have_a_place(session: Session, text: str, message: str, column: int) -> None:
    with pytest.raises(StatementError, match="line 1") as caught:
        run(session, text)
    (fault,) = caught.value.faults
    assert f"{fault.message} {fault.hint}" == message
    assert fault.position.column == column


def test_tables_are_listed_and_described(session: Session) -> None:
    tables, described = run(session, "SHOW TABLES; DESCRIBE iris.train")
    assert {"employee", "iris.train", "census_income", "housing.test"} <= {row[0] for row in rows(tables)}
    assert rows(described)[-1] == ("class", "int64")
    with pytest.raises(UserError, match=r"there is no table 'iris\.trian'"):
        run(session, "DESCRIBE iris.trian")


def test_a_select_shows_a_limited_number_of_rows(session: Session) -> None:
    (result,) = run(session, "SELECT * FROM employee")
    assert result.table is not None
    assert (len(result.table.rows), result.table.is_cut) == (1_000, True)


def test_dates_that_python_has_not_are_texts(session: Session) -> None:
    (result,) = run(
        session, "SELECT 'infinity'::date AS never, date '2020-02-29' AS day, [date '5000000-01-01'] AS far"
    )
    never, day, far = rows(result)[0]
    assert isinstance(never, str)
    assert day == datetime.date(2020, 2, 29)
    assert isinstance(far, str)


def test_a_column_that_can_not_be_stored_is_named(session: Session) -> None:
    with pytest.raises(UserError, match="the column 'span' is month_day_nano_interval"):
        run(session, "EXPLAIN PLAN SELECT age, income, INTERVAL 1 DAY AS span FROM employee LABEL income INTO pay")


def test_a_statement_reads_the_database_that_has_its_tables(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.csv").write_text(f"a\n{name}\n")
    places = [str(tmp_path / name) for name in ("first", "second")]
    with Attached(places) as databases:
        session = Session(databases=databases, registry=Registry(tmp_path), jobs=Jobs(), display=Display())
        assert rows(run(session, "SELECT * FROM second")[0]) == (("second",),)
        assert rows(run(session, "SELECT * FROM first")[0]) == (("first",),)


def test_what_a_version_says_is_json(session: Session) -> None:
    run(session, TRAINED)
    facts = json.loads((session.registry.root / "pay" / "versions" / "1.json").read_text())
    assert facts["record"]["database"] == "shipped tables"
    assert facts["metrics"] == {"val_loss": 0.5, "r2": 0.25}


def test_jobs_on_kubernetes_need_a_storage_that_pods_reach(session: Session) -> None:
    with pytest.raises(StatementError, match="models and rows are on this machine") as caught:
        run(session, f"{TRAINED} WITH platform = 'kubernetes', worker_resource_request = 'cpu=1'")
    assert caught.value.faults[0].hint.endswith("elasticdl sql --storage=s3://BUCKET/PREFIX.")
    with pytest.raises(UserError, match="models and rows are on this machine"):
        run(replace(session, options={"platform": "kubernetes"}), TRAINED)
    with pytest.raises(StatementError, match="image_name needs platform = 'kubernetes'"):
        run(session, f"{TRAINED} WITH image_name = 'mine'")
    assert jobs_of(session).started == []
