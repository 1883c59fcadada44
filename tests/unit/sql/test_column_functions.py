"""COLUMN functions: what they make of columns, and what is wrong with them, all at once and with positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.sql.statements_for_tests import call, clause, prepare, statement, uses

from elasticdl.sql.columns.features import Feature, Features, Node
from elasticdl.sql.statements import Literal, Name, Pattern, Position, Star, StatementError

N = 40
TABLE = pa.table(
    {
        "age": [number % 10 for number in range(N)],
        "city": [f"c{number % 4}" for number in range(N)],
        "job": [None if number == 1 else f"j{number % 3}" for number in range(N)],
        "code": [number % 6 for number in range(N)],
        "csv": ["1,2,3", "4,5,6"] * 20,
        "kv": ["0:1.5 2:2", "1:-1"] * 20,
        "ids": ["0,5", "", "7,99", "2"] * 10,
        "sex_m": [number % 2 for number in range(N)],
        "sex_f": [1 - number % 2 for number in range(N)],
        "y": [float(number) for number in range(N)],
    }
)
WHOLE: dict[str, Any] = {"validation__split": 0}


def features(folder: Path, *columns: Any, **attributes: Any) -> tuple[list[Feature], pa.Table]:
    """The features of a COLUMN clause with ``FOR x``, so only of that, and the prepared rows."""
    prepared = prepare(folder, TABLE, statement(columns=(clause(*columns, target="x"),), **WHOLE, **attributes))
    found = Features.of_json(prepared.features.read_text())
    return list(found.features), pq.read_table(prepared.training_data)


def node(folder: Path, column: Any) -> Node:
    (feature,), _ = features(folder, column)
    return feature.node


def test_numbers_are_scaled_by_statistics_of_the_training_rows(tmp_path: Path) -> None:
    assert node(tmp_path, call("NUMERIC", "age")).values["shift"] == 4.5
    assert node(tmp_path, call("STANDARDIZE", "age")).values["scale"] == pytest.approx(8.25**0.5)
    assert node(tmp_path, call("NORMALIZE", "age")).values == {"shift": 0.0, "scale": 9.0, "missing": False}


def test_intervals_come_from_the_statement_or_from_quantiles(tmp_path: Path) -> None:
    given = node(tmp_path, call("BUCKET", "age", (2, 5)))
    assert given.operation == "indicator"
    assert given.of[0].values == {"boundaries": [2.0, 5.0]}
    fitted = node(tmp_path, call("BUCKETIZE", "age", num_buckets=5))
    assert fitted.of[0].values == {"boundaries": [1.0, 3.0, 5.0, 7.0]}


def test_ids_with_weights_are_a_vector_of_weights(tmp_path: Path) -> None:
    sparse = call("SPARSE", "kv", 3, delim=" ", delim_kv=":")
    few = call("WEIGHTED_CATEGORY", call("CATEGORY_ID", sparse, 3))
    (feature,), rows = features(tmp_path, few)
    assert (feature.node.operation, feature.node.of[0].values) == ("weighted_indicator", {"size": 3})
    assert {tuple(row) for row in rows.column(feature.node.input).to_pylist()} == {(1.5, 0.0, 2.0), (0.0, -1.0, 0.0)}
    many = node(tmp_path, call("EMBEDDING", call("WEIGHTED_CATEGORY", call("CATEGORY_HASH", sparse, 99)), 4))
    assert (many.operation, many.values["dimension"], many.of[0].values) == ("weighted_embedding", 4, {"buckets": 99})


def test_categories_have_vocabularies_hashes_and_ids(tmp_path: Path) -> None:
    words = node(tmp_path, call("VOCABULARIZE", "job")).of[0]
    assert words.values == {"words": ["j0", "j2", "j1"]}  # Frequent ones first, then in order.
    assert node(tmp_path, call("VOCABULARIZE", "city", max_size=2)).of[0].values == {"words": ["c0", "c1"]}
    assert node(tmp_path, call("CATEGORY_HASH", "city", 100)).of[0].values == {"buckets": 100}
    assert node(tmp_path, call("HASH", "city")).of[0].values == {"buckets": 12}
    assert node(tmp_path, call("CATEGORY_ID", "code", 6)).of[0].values == {"size": 6}


def test_embeddings_and_indicators_take_categories_and_plain_columns(tmp_path: Path) -> None:
    found = node(tmp_path, call("EMBEDDING", call("CATEGORY_HASH", "city", 1000), 16, combiner="sum"))
    assert (found.operation, dict(found.values)) == ("embedding", {"dimension": 16, "combiner": "sum"})
    assert node(tmp_path, call("INDICATOR", "city")).of[0].operation == "vocabulary"
    crossed = node(tmp_path, call("EMBEDDING", call("CROSS", "city", call("BUCKET", "age", (5,)), 50), 4))
    assert [part.operation for part in crossed.of[0].of] == ["vocabulary", "bucket"]
    both = node(tmp_path, call("EMBEDDING", call("CONCAT", "city", "job"), 4))
    assert both.of[0].operation == "concat"


def test_texts_with_lists_become_vectors_and_lists_of_ids(tmp_path: Path) -> None:
    found, rows = features(
        tmp_path,
        call("DENSE", "csv", 3, Name("COMMA")),
        call("SPARSE", "kv", 3, delim=" ", delim_kv=":"),
        call("EMBEDDING", call("SEQ_CATEGORY_ID", "ids", 8), 4),
    )
    assert [each.node.operation for each in found] == ["vector", "vector", "embedding"]
    listed = sorted(map(tuple, rows.column("ids").to_pylist()))
    assert listed[0] == ()
    assert {*listed} == {(), (1, 6), (8, -1), (3,)}  # One more than the id; -1: out of range.
    assert {tuple(each) for each in rows.column("csv").to_pylist()} == {(1, 2, 3), (4, 5, 6)}
    assert {tuple(each) for each in rows.column("kv").to_pylist()} == {(1.5, 0, 2), (0, -1, 0)}


def test_a_regular_expression_stands_for_each_column_that_it_matches(tmp_path: Path) -> None:
    found, _ = features(tmp_path, call("INDICATOR", Pattern("SEX_.*")), Pattern("age"))
    assert [next(each.node.inputs()) for each in found] == ["sex_m", "sex_f", "age"]


def test_columns_without_a_clause_are_derived_unless_targets_are_named(tmp_path: Path) -> None:
    one = prepare(tmp_path, TABLE, statement(columns=(clause(call("EMBEDDING", "city", 2)),)))
    assert uses(one)["age"] == "number"
    assert uses(one)["city"] == "embedding of 6, dimension 2"
    listed = (clause("age", target="wide"), clause("city", target="deep"))
    two = prepare(tmp_path, TABLE, statement(columns=listed))
    assert uses(two)["code"] == "left out"
    rest = prepare(tmp_path, TABLE, statement(columns=(clause("age", Star(), target="wide"),)))
    assert uses(rest)["code"] == "number"


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (Name("aeg"), "the SELECT has no column 'aeg'.*Did you mean 'age'"),
        (call("EMBEDING", "age", 3), "no COLUMN function EMBEDING.*Did you mean 'EMBEDDING'"),
        (call("WEIGHTED_CATEGORY", "age"), "takes a category of ids with weights"),
        (call("CATEGORY_HASH", "city"), "needs its argument 'size'.*CATEGORY_HASH\\(column, size\\)"),
        (call("CATEGORY_HASH", "city", 0), "a whole number from 1 to"),
        (call("BUCKET", "age", (5, 2)), "a list of increasing numbers"),
        (call("EMBEDDING", "city", 3, combiner="max"), "mean, sum or sqrtn"),
        (call("EMBEDDING", "city", dimensions=3), "no argument 'dimensions'.*Did you mean 'dimension'"),
        (call("CROSS", "city", 9), "CROSS needs two columns"),
        (call("EMBEDDING", call("NUMERIC", "age"), 3), "EMBEDDING takes a column or a category"),
        (call("NUMERIC", "city"), "NUMERIC needs numbers, and 'city' is string"),
        (call("INDICATOR", Pattern("x_.*")), "no column of the SELECT matches"),
        (Pattern("(["), "not a regular expression"),
        (Name("y"), "'y' is the label"),
        (Literal(3), "3 is not a column"),
        (call("SPARSE", "ids", 9), "SPARSE without delim_kv"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_write(tmp_path: Path, column: Any, says: str) -> None:
    with pytest.raises(StatementError, match=f"(?s){says}"):
        features(tmp_path, column)


def test_all_faults_of_a_statement_are_reported_together(tmp_path: Path) -> None:
    wrong = statement(
        "incom",
        columns=(clause(Name("aeg", Position(1, 40, 39)), call("FOO", "city")),),
        model="DNNClasifier",
        validation__split_by="user",
    )
    with pytest.raises(StatementError) as raised:
        prepare(tmp_path, TABLE, wrong)
    assert len(raised.value.faults) == 5
    assert any("DNNClassifier" in fault.hint for fault in raised.value.faults)


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"validation__split_by": "y"}, "validation.split_by is the label"),
        ({"validation__select": "SELECT 1", "validation__split": 0.3}, "validation.split has no meaning beside"),
        ({"validation__select": "SELECT 1", "validation__split_by": "city"}, "validation.split_by has no meaning"),
    ],
)
def test_rows_for_validation_have_one_origin(tmp_path: Path, attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(StatementError, match=says):
        prepare(tmp_path, TABLE, statement(**attributes))


def test_arguments_of_networks_are_checked(tmp_path: Path) -> None:
    wrong = statement(model="DNNRegressor", model__hidden_units=(8, 0), model__dropout=2, model__hiden_units=3)
    with pytest.raises(StatementError) as raised:
        prepare(tmp_path, TABLE, wrong)
    assert [fault.message for fault in raised.value.faults] == [
        "model.hidden_units is between 1 and 65,536.",
        "model.dropout is between 0 and 0.95.",
        "DNNRegressor has no 'model.hiden_units'.",
    ]
    wrong = statement(model="DCM", model__hidden_units=(8,), model__hiden_units=3, model__optimizer="adm")
    with pytest.raises(StatementError) as raised:
        prepare(tmp_path, TABLE, wrong)
    assert [(fault.message[:30], fault.hint) for fault in raised.value.faults] == [
        ("there is no network 'DCM'.", "Did you mean 'DCN'?"),
        ("the network has no 'model.hide", "Did you mean 'model.hidden_units'?"),
        ("model.optimizer is one of adam", "Did you mean 'adam'?"),
    ]
    right = prepare(tmp_path, TABLE, statement(model="DNNRegressor", model__hidden_units=(8,), model__optimizer="sgd"))
    arguments = Features.of_json(right.features.read_text()).arguments
    assert (arguments["hidden_units"], arguments["optimizer"]) == ([8], "sgd")
