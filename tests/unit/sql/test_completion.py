"""Names that the shell offers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from elasticdl.sql.completion import Catalogue, completions

COLUMNS = {"employee": ["age", "income"], "iris.train": ["class", "sepal_length"]}


def columns(tables: Sequence[str]) -> list[str]:
    return [name for table in tables for name in COLUMNS.get(table, [])]


CATALOGUE = Catalogue(
    tables=lambda: COLUMNS,
    columns=columns,
    models=lambda: ["pay", "zoo.net"],
    networks={"DNNClassifier": ["hidden_units"], "DCN": ["cross_layers"]},
    functions=["EMBEDDING", "CROSS"],
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sh", ["SHOW MODELS", "SHOW TABLES", "SHOW TRAIN"]),
        ("SHOW ", ["MODELS", "TABLES", "TRAIN"]),
        ("SELECT 1; DROP ", ["MODEL"]),
        ("SELECT * FROM ", ["employee", "iris.train"]),
        ("SELECT * FROM ir", ["iris.train"]),
        ("SELECT * FROM employee LABEL in", ["income"]),
        ("SELECT * FROM iris.train LABEL ", ["class", "sepal_length"]),
        ("SELECT * FROM employee TO ", ["EVALUATE", "EXPLAIN", "PREDICT", "TRAIN"]),
        ("SELECT * FROM employee TO TRAIN D", ["DCN", "DNNClassifier"]),
        ("SELECT * FROM employee TO TRAIN DCN WITH model.c", ["model.cross_layers"]),
        ("SELECT * FROM employee TO TRAIN DCN WITH num_epochs=3, num_w", ["num_workers"]),
        ("SELECT * FROM employee TO TRAIN DCN COLUMN age, CR", ["CROSS"]),
        ("SELECT * FROM employee TO PREDICT t USING ", ["pay", "zoo.net"]),
        ("SELECT * FROM employee TO PREDICT t USING zoo.", ["zoo.net"]),
        ("SELECT * FROM employee TO PREDICT t WITH predict.", ["predict.probabilities"]),
        ("SELECT * FROM employee TO EVALUATE p", ["pay"]),
        ("DROP MODEL ", ["pay", "zoo.net"]),
        ("DESCRIBE ir", ["iris.train"]),
        ("SELECT * FROM employee WHERE inc", ["income"]),
        ("SELECT 'FROM ", []),
        ("SELECT /* FROM ", []),
    ],
)
def test_what_can_follow(text: str, found: list[str]) -> None:
    assert completions(text, CATALOGUE)[0] == found


def test_what_is_replaced_is_the_name_that_was_begun() -> None:
    assert completions("SELECT * FROM iris.t", CATALOGUE) == (["iris.train"], 6)
