"""The tutorials of SQLFlow: their statements run as they are printed, and learn as much as plain Keras does."""

from __future__ import annotations

import json
from dataclasses import dataclass

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from tests.e2e.elastic import Elastic

from elasticdl.sql.shipped import shipped_tables

STATEMENTS_S_MAX = 1200.0
EPOCHS, BATCH, HIDDEN = 20, 32, (64, 32)


@dataclass(frozen=True, slots=True)
class Tutorial:
    """Statements, and the tables that plain Keras learns from and is evaluated on.

    Attributes:
        less: how much less accuracy, or R2, a job may reach: its minibatches come in another order.
    """

    statements: str
    train: str
    test: str
    label: str
    metric: str
    less: float


WITH = f"model.hidden_units = [64, 32], train.epoch = {EPOCHS}, train.batch_size = {BATCH}"
TUTORIALS = {
    "iris": Tutorial(
        f"""SELECT * FROM iris.train TO TRAIN DNNClassifier WITH model.n_classes = 3, {WITH}
        LABEL class INTO zoo.iris_net;
        SELECT * FROM iris.test TO PREDICT iris.guess.class WITH predict.num_workers = 2 USING zoo.iris_net;
        SELECT * FROM iris.test TO EVALUATE zoo.iris_net WITH validation.metrics = "Accuracy"
        LABEL class INTO score;""",
        *("iris.train", "iris.test", "class", "accuracy", 0.1),
    ),
    "census": Tutorial(
        f"""SELECT * FROM census_income WHERE hash(age, hours_per_week) % 5 > 0 TO TRAIN WideAndDeep WITH {WITH}
        COLUMN BUCKET(age, [25, 35, 50]), CROSS([education, occupation], 500), * FOR linear_feature_columns
        COLUMN EMBEDDING(CATEGORY_HASH(workclass, 64), 8), age, education, occupation, * FOR dnn_feature_columns
        LABEL income_bracket INTO zoo.census;
        SELECT * FROM census_income WHERE hash(age, hours_per_week) % 5 = 0 TO EVALUATE zoo.census INTO score;""",
        *("census_income", "", "income_bracket", "accuracy", 0.02),
    ),
    "housing": Tutorial(
        f"""SELECT * FROM housing.train TO TRAIN DNNRegressor WITH {WITH} LABEL target INTO zoo.housing;
        SELECT * FROM housing.test TO EVALUATE zoo.housing LABEL target INTO score;""",
        *("housing.train", "housing.test", "target", "r2", 0.05),
    ),
}


@pytest.mark.thorough
@pytest.mark.timeout(STATEMENTS_S_MAX)
@pytest.mark.parametrize("name", list(TUTORIALS))
def test_a_tutorial_runs_as_it_is_printed_and_learns_as_much_as_keras(
    elastic: Elastic, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tutorial = TUTORIALS[name]
    for variable in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(elastic.folder / variable))
        elastic.environment[variable] = str(elastic.folder / variable)
    outcome = elastic.run("sql", "-e", tutorial.statements, timeout_s=STATEMENTS_S_MAX)
    assert outcome.exit_code == 0, outcome.output
    read = json.loads(elastic.run("sql", "--json", "-e", "SELECT * FROM score").output)
    (row,) = read["results"][0]["rows"]
    reached = next(value for key, value in row.items() if key.removeprefix("val_") == tutorial.metric)
    tables = shipped_tables()
    train = pq.read_table(tables[tutorial.train])
    if tutorial.test:
        test = pq.read_table(tables[tutorial.test])
    else:
        places = np.random.default_rng(0).permutation(train.num_rows)
        train, test = train.take(places[len(places) // 5 :]), train.take(places[: len(places) // 5])
    plain = by_keras(train, test, tutorial.label, tutorial.metric)
    assert reached >= plain - tutorial.less, (name, reached, plain)


def by_keras(train: pa.Table, test: pa.Table, label: str, metric: str) -> float:
    """Accuracy, or R2, of a plain Keras model with these hidden layers."""
    keras.utils.set_random_seed(1)
    x, x_test = inputs(train, test, label)
    y, y_test = (np.array(each.column(label).to_pylist()) for each in (train, test))
    if metric == "accuracy":
        classes, y = np.unique(y, return_inverse=True)
        y_test, last, loss = np.searchsorted(classes, y_test), len(classes), "sparse_categorical_crossentropy"
    else:
        mean, scale, last, loss = y.mean(), y.std(), 1, "mse"
        y, y_test = (y - mean) / scale, (y_test - mean) / scale
    hidden = [keras.layers.Dense(units, activation="relu") for units in HIDDEN]
    model = keras.Sequential([*hidden, keras.layers.Dense(last, activation="softmax" if last > 1 else None)])
    model.compile("adam", loss, metrics=["accuracy" if metric == "accuracy" else "r2_score"])
    model.fit(x, y.reshape(-1, 1), epochs=EPOCHS, batch_size=BATCH, verbose=0)
    return float(model.evaluate(x_test, y_test.reshape(-1, 1), verbose=0)[1])


def inputs(train: pa.Table, test: pa.Table, label: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """All other columns: numbers scaled, texts as 0 and 1 for each value."""
    parts: tuple[list[NDArray[np.float32]], list[NDArray[np.float32]]] = ([], [])
    for name in train.column_names:
        values = [np.array(each.column(name).to_pylist()) for each in (train, test)]
        if name == label:
            continue
        for part, column in zip(parts, values, strict=True):
            if values[0].dtype.kind in "US" or values[0].dtype.kind == "O":
                known = sorted({str(each) for each in values[0]})
                part.append((column.astype(str)[:, np.newaxis] == np.array(known)).astype(np.float32))
            else:
                scaled = (column.astype(float) - values[0].mean()) / (values[0].std() or 1)
                part.append(scaled[:, np.newaxis].astype(np.float32))
    return np.concatenate(parts[0], axis=1), np.concatenate(parts[1], axis=1)
