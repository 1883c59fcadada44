"""SQL from the command line: statements to jobs to models to tables."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.elastic import PROGRESS, Elastic, left_behind

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorials" / "sql.md"
TITLE = "SELECT * FROM employee LABEL income INTO my_elasticdl_model"
SHORT = "SELECT age, department, income FROM employee LABEL income INTO m"
STATEMENTS_S_MAX = 1200.0
"""Of a script with several jobs, on a slow machine."""


@pytest.fixture
def user(elastic: Elastic) -> Elastic:
    """A user without tables of their own."""
    elastic.environment |= {name: str(elastic.folder / name) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME")}
    return elastic


def results(elastic: Elastic, *arguments: str) -> list[dict[str, Any]]:
    """What statements without jobs return."""
    outcome = elastic.run("sql", "--json", *arguments)
    assert outcome.exit_code == 0, outcome.output
    found: list[dict[str, Any]] = json.loads(outcome.output)["results"]
    return found


def test_the_statement_of_the_readme_trains_a_model_that_is_registered(user: Elastic) -> None:
    outcome = user.run("sql", "-e", TITLE)
    assert outcome.exit_code == 0, outcome.output
    assert re.search(r"^id\tleft out\tits name is that of an id", outcome.output, re.MULTILINE)
    assert re.search(r"^department\tone-hot", outcome.output, re.MULTILINE)
    assert "audit               exact" in outcome.output
    assert "Registered my_elasticdl_model@1." in outcome.output
    r2 = re.search(r"^r2\t(\S+)$", outcome.output, re.MULTILINE)
    assert r2 and float(r2[1]) > 0.8
    listed, trained = results(user, "-e", "SHOW MODELS", "-e", "SHOW TRAIN my_elasticdl_model")
    assert [(row["model"], row["state"], row["rows"]) for row in listed["rows"]] == [
        ("my_elasticdl_model@1", "registered", "4,000")
    ]
    assert trained["text"] == TITLE


def test_wrong_statements_run_nothing(user: Elastic) -> None:
    outcome = user.run("sql", "-e", f"SHOW TABLES; {TITLE.replace('LABEL', 'LABLE')}")
    assert outcome.exit_code == 2
    assert outcome.output.splitlines()[-1].strip() == "^^^^^ Did you mean LABEL?"
    assert "employee" not in outcome.output.splitlines()[0]


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_the_tutorial_runs_as_it_is_printed(user: Elastic) -> None:
    blocks = re.findall(r"^```sql\n(.*?)^```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    script = user.folder / "tutorial.sql"
    script.write_text("\n".join(blocks))
    outcome = user.run("sql", "-f", str(script), timeout_s=STATEMENTS_S_MAX)
    assert outcome.exit_code == 0, outcome.output
    for text in (
        "Registered my_elasticdl_model@1.",
        "to the table guesses in shipped tables",
        "Registered my_elasticdl_model@2.",
        "classification",
        "Registered iris_net@1.",
        "Dropped iris_net: 1 version.",
        "Dropped my_elasticdl_model: 2 versions.",
    ):
        assert text in outcome.output


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_a_wide_table_is_predicted_as_it_is_evaluated(user: Elastic) -> None:
    rows, columns = 200, 120
    lines = [",".join([*(f"c{column}" for column in range(columns)), "kind", "y"])]
    for row in range(rows):
        cells = ["" if (row + column) % 17 == 0 else str((row * (column + 3)) % 101) for column in range(columns)]
        lines.append(",".join([*cells, "ab"[row % 2], str(row % 10)]))
    (user.folder / "tables").mkdir()
    (user.folder / "tables" / "wide.csv").write_text("\n".join(lines))
    place = f"--database={user.folder / 'tables'}"
    train = "SELECT * FROM wide TO TRAIN DNNRegressor WITH num_epochs = 2 LABEL y INTO m"
    use = "SELECT * FROM wide TO EVALUATE m INTO scores; SELECT * FROM wide TO PREDICT guesses.guess USING m"
    outcome = user.run("sql", place, "-e", f"{train}; {use}", timeout_s=STATEMENTS_S_MAX)
    assert outcome.exit_code == 0, outcome.output
    assert "packed_numbers: float32[120]" in outcome.output
    (scores, guesses) = results(user, place, "-e", "SELECT * FROM scores; SELECT y, guess FROM guesses")
    squares = [(row["y"] - row["guess"]) ** 2 for row in guesses["rows"]]
    assert len(squares) == rows
    assert scores["rows"][0]["root_mean_squared_error"] ** 2 == pytest.approx(sum(squares) / rows, rel=1e-4)


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_a_training_that_is_interrupted_and_resumed_is_registered(user: Elastic) -> None:
    statement = f"{SHORT} WITH num_epochs=400"
    with user.start("sql", "-e", statement) as running:
        running.wait_for(PROGRESS, STATEMENTS_S_MAX)
        running.process.send_signal(signal.SIGINT)
        assert running.wait(STATEMENTS_S_MAX) == 130
        line = running.wait_for(r"elasticdl (resume \S+)")
    assert left_behind(user.folder) == []
    (listed,) = results(user, "-e", "SHOW MODELS")
    assert [(row["model"], row["state"].partition(":")[0]) for row in listed["rows"]] == [("m", "stopped")]
    resumed = user.run(*line.group(1).split(), timeout_s=STATEMENTS_S_MAX)
    assert resumed.exit_code == 0, resumed.output
    (listed,) = results(user, "-e", "SHOW MODELS")
    assert [(row["model"], row["state"]) for row in listed["rows"]] == [("m@1", "registered")]


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
def test_a_training_outlives_the_command_that_is_killed(user: Elastic) -> None:
    statement = f"{SHORT} WITH num_epochs=20"
    with user.start("sql", "-e", statement) as running:
        running.wait_for(PROGRESS, STATEMENTS_S_MAX)
        running.process.kill()
        running.process.wait()
    user.wait_until_gone()
    (listed,) = results(user, "-e", "SHOW MODELS")
    assert [(row["model"], row["state"]) for row in listed["rows"]] == [("m@1", "registered")]
