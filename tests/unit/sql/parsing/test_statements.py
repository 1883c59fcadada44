"""Statements that are right: what the parser makes of them."""

from __future__ import annotations

import pytest

from elasticdl.sql.parsing import parse, parse_one
from elasticdl.sql.statements import (
    Attribute,
    Call,
    ColumnClause,
    DescribeModel,
    DescribeTable,
    DropModel,
    Evaluate,
    Explain,
    ExplainPlan,
    Literal,
    ModelName,
    Name,
    Pattern,
    Position,
    Predict,
    Query,
    Select,
    ShowModels,
    ShowTables,
    ShowTrain,
    Star,
    Statement,
    Train,
    Value,
)


def attribute(name: str, value: Value) -> Attribute:
    return Attribute(Name(name), value)


def names(*texts: str) -> tuple[Name, ...]:
    return tuple(Name(text) for text in texts)


EMPLOYEES = Query("SELECT * FROM employee")
STATEMENTS: dict[str, Statement] = {
    "SELECT * FROM employee LABEL income INTO my_elasticdl_model": Train(
        EMPLOYEES, names("income"), Name("my_elasticdl_model")
    ),
    "SELECT * FROM iris.train TO TRAIN DNNClassifier WITH model.n_classes=3, model.hidden_units=[16,16], train.epoch=5 "
    "LABEL class INTO zoo.iris_net;": Train(
        Query("SELECT * FROM iris.train"),
        names("class"),
        Name("zoo.iris_net"),
        Name("DNNClassifier"),
        (attribute("model.n_classes", 3), attribute("model.hidden_units", (16, 16)), attribute("train.epoch", 5)),
    ),
    "SELECT * FROM iris.test TO PREDICT iris.guess.class WITH predict.num_workers=2 USING zoo.iris_net;": Predict(
        Query("SELECT * FROM iris.test"),
        Name("iris.guess"),
        Name("class"),
        ModelName(Name("zoo.iris_net")),
        (attribute("predict.num_workers", 2),),
    ),
    "SELECT * FROM employee TO PREDICT guesses USING m@3": Predict(
        EMPLOYEES, Name("guesses"), None, ModelName(Name("m"), 3)
    ),
    'SELECT * FROM employee TO EVALUATE m WITH validation.metrics="Accuracy" LABEL class INTO iris.score': Evaluate(
        EMPLOYEES,
        ModelName(Name("m")),
        Name("class"),
        Name("iris.score"),
        (attribute("validation.metrics", "Accuracy"),),
    ),
    "SELECT * FROM employee TO EVALUATE m": Evaluate(EMPLOYEES, ModelName(Name("m"))),
    "SELECT * FROM employee TO EXPLAIN zoo.boston WITH summary.plot_type=bar USING TreeExplainer INTO b.why": Explain(
        EMPLOYEES,
        ModelName(Name("zoo.boston")),
        Name("b.why"),
        (attribute("summary.plot_type", "bar"),),
        Name("TreeExplainer"),
    ),
    "SELECT * FROM employee TO TRAIN WideAndDeep WITH a=1 "
    "COLUMN BUCKET(age, [25,35,-50]), CROSS([education, occupation], 500) FOR linear_feature_columns "
    "COLUMN EMBEDDING(CATEGORY_HASH(workclass, 64), 8, combiner='sum'), 'sex_.*', \"in come\", * "
    "FOR dnn_feature_columns LABEL label INTO zoo.census": Train(
        EMPLOYEES,
        names("label"),
        Name("zoo.census"),
        Name("WideAndDeep"),
        (attribute("a", 1),),
        (
            ColumnClause(
                (
                    Call(Name("BUCKET"), (Name("age"), Literal((25, 35, -50)))),
                    Call(Name("CROSS"), (*names("education", "occupation"), Literal(500))),
                ),
                Name("linear_feature_columns"),
            ),
            ColumnClause(
                (
                    Call(
                        Name("EMBEDDING"),
                        (Call(Name("CATEGORY_HASH"), (Name("workclass"), Literal(64))), Literal(8)),
                        ((Name("combiner"), Literal("sum")),),
                    ),
                    Pattern("sex_.*"),
                    Name("in come"),
                    Star(),
                ),
                Name("dnn_feature_columns"),
            ),
        ),
    ),
    "select * from employee INTO `my zoo`.net label 'pay' using old@2": Train(
        Query("select * from employee"), names("pay"), Name("my zoo.net"), using=ModelName(Name("old"), 2)
    ),
    "FROM employee label pay using old@2 into m": Train(
        Query("FROM employee"), names("pay"), Name("m"), using=ModelName(Name("old"), 2)
    ),
    "SHOW MODELS": ShowModels(),
    "show tables;": ShowTables(),
    "SHOW TRAIN zoo.net": ShowTrain(ModelName(Name("zoo.net"))),
    "DESCRIBE MODEL m@2": DescribeModel(ModelName(Name("m"), 2)),
    "DESCRIBE iris.train": DescribeTable(Name("iris.train")),
    "DROP MODEL m": DropModel(ModelName(Name("m"))),
    "EXPLAIN PLAN SELECT * FROM employee LABEL pay INTO m": ExplainPlan(Train(EMPLOYEES, names("pay"), Name("m"))),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_statement_is_read(text: str) -> None:
    assert parse_one(text).statement == STATEMENTS[text]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT label FROM t",
        "SELECT a label, b AS using FROM t ORDER BY label DESC",
        "SELECT * FROM t WHERE label = 3 AND x IN (SELECT y LABEL FROM z)",
        "WITH c AS (SELECT 1 AS column) SELECT * FROM c JOIN d USING (id)",
        "SELECT 'LABEL x INTO y', \"INTO\" FROM t -- LABEL a INTO b\n WHERE /* LABEL /* nested */ */ x > 1",
        "SELECT sum(x) OVER (PARTITION BY a ORDER BY b) FROM t LIMIT 10",
        "SELECT a FROM t UNION ALL SELECT b FROM u",
        "SELECT $$LABEL x$$, e'it\\'s', 1.5e3, x::int[] FROM t",
        "SELECT ts AT TIME ZONE 'UTC', INTERVAL '1-2' YEAR TO MONTH FROM t",
        "SELECT CAST(x AS TIMESTAMP WITH TIME ZONE) FROM t",
    ],
)
def test_the_select_is_left_as_it_is(query: str) -> None:
    assert parse_one(query).statement == Select(Query(query))
    trained = parse_one(f"{query} LABEL label INTO m").statement
    assert trained == Train(Query(query), names("label"), Name("m"))
    predicted = parse_one(f"{query}\nTO PREDICT t USING m").statement
    assert predicted == Predict(Query(query), Name("t"), None, ModelName(Name("m")))


def test_clauses_come_in_any_order() -> None:
    clauses = ["WITH num_epochs=3", "COLUMN a", "LABEL b", "INTO m"]
    first = parse_one(f"SELECT 1 TO TRAIN X {' '.join(clauses)}").statement
    assert parse_one(f"SELECT 1 TO TRAIN X {' '.join(reversed(clauses))}").statement == first
    assert parse_one("SELECT 1 INTO m WITH num_epochs=3 LABEL b").statement == Train(
        Query("SELECT 1"), names("b"), Name("m"), attributes=(attribute("num_epochs", 3),)
    )


def test_statements_of_a_script_keep_their_text_and_place() -> None:
    parsed = parse("-- first\nSHOW MODELS ; ;\n  SELECT * FROM t\n  LABEL y INTO m -- last\n;")
    assert [(each.text, each.position) for each in parsed] == [
        ("SHOW MODELS", Position(2, 1, 9)),
        ("SELECT * FROM t\n  LABEL y INTO m", Position(3, 3, 27)),
    ]
    train = parsed[1].statement
    assert isinstance(train, Train)
    assert train.label[0].position == Position(4, 9, 51)


def test_an_empty_script_has_no_statements() -> None:
    assert parse(" ;; -- nothing\n") == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-1", -1),
        ("2.50", 2.5),
        ("1e-3", 0.001),
        ("TRUE", True),
        ("null", None),
        ("Adam", "Adam"),
        ("'it''s'", "it's"),
        ('"a ""b"""', 'a "b"'),
        ("[1, 'a', [2.5]]", (1, "a", (2.5,))),
        ("[]", ()),
        ("org/model:v1.2", "org/model:v1.2"),
    ],
)
def test_values_of_attributes(text: str, value: Value) -> None:
    statement = parse_one(f"SELECT 1 TO TRAIN X WITH a.b = {text} LABEL y INTO m").statement
    assert isinstance(statement, Train)
    (found,) = statement.attributes
    assert (found.value, type(found.value)) == (value, type(value))
