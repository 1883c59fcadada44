"""WITH: every attribute has a type, and what is wrong with it is said at its place."""

from __future__ import annotations

import pytest

from elasticdl.sql.attributes import EXPLAIN, PREDICT, TRAIN, attribute_table, check_attributes, with_current_names
from elasticdl.sql.parsing import parse_one, render
from elasticdl.sql.statements import Predict, StatementError, Train


def train(attributes: str) -> Train:
    statement = parse_one(f"SELECT 1 TO TRAIN X WITH {attributes} LABEL a INTO b").statement
    assert isinstance(statement, Train)
    return statement


def test_options_of_the_job_are_attributes() -> None:
    known = attribute_table(TRAIN)
    assert {"num_workers", "num_epochs", "minibatch_size", "use_async", "validation.split"} <= set(known)
    assert known["num_workers"].kind == "integer"
    assert list(known["num_workers"].limits or ()) == [1, 1024]
    assert known["use_async"].choices == ("true", "false")
    assert "predict.probabilities" in attribute_table(PREDICT)
    assert "num_epochs" not in attribute_table(EXPLAIN)


def test_none_can_have_credentials_or_contradict_the_statement() -> None:
    for verb in (TRAIN, PREDICT, EXPLAIN):
        assert not {"envs", "nats_url", "output", "training_data", "model_def", "run_dir"} & set(attribute_table(verb))


def test_values_are_those_of_the_options() -> None:
    checked = check_attributes(
        train("num_workers=4, use_async=false, evaluation_throttle_secs='1m', validation.split=0.1, model.x=[1]")
    )
    assert checked.faults == ()
    assert checked.options == {"num_workers": 4, "use_async": "false", "evaluation_throttle_secs": "1m"}
    assert checked.settings == {"validation.split": 0.1}


def test_names_of_sqlflow_are_understood() -> None:
    statement = train("train.epoch=5, train.batch_size=32, train.verbose=1, optimizer.learning_rate=0.1")
    checked = check_attributes(statement)
    assert checked.faults == ()
    assert checked.options == {"num_epochs": 5, "minibatch_size": 32}
    assert checked.notes == ("train.verbose has no effect.",)
    current = with_current_names(statement.attributes)
    assert [each.name.text for each in current] == ["num_epochs", "minibatch_size", "model.learning_rate"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ("num_epoch=3", "'num_epoch' is not an attribute of TO TRAIN. Did you mean num_epochs?"),
        ("train.num_worker=3", "'train.num_worker' is not an attribute of TO TRAIN. Did you mean train.num_workers?"),
        ("objective='reg'", "'objective' is not an attribute of TO TRAIN. Arguments of the model begin with model."),
        ("num_workers=x", "num_workers is a whole number, not x."),
        ("num_workers=1.5", "num_workers is a whole number, not 1.5."),
        ("num_workers=0", "num_workers is between 1 and 1,024, not 0."),
        ("num_workers=[1]", "num_workers is a whole number, not 1."),
        ("num_workers=null", "num_workers is a whole number, not null."),
        ("eager=1", "eager is true or false, not 1."),
        ("use_async=maybe", "use_async is one of true, false, not maybe."),
        ("min_delta=1e999", "min_delta is a number, not inf."),
        ("validation.split=2", "validation.split is between 0 and 0.9, not 2."),
        ("save_best=true", "save_best is a text, not true."),
        ("output='x'", "output is not an attribute: it follows from the statement. Leave it out."),
        ("envs='SECRET=1'", "envs is not an attribute. It belongs to the command or to the environment."),
        ("num_epochs=1, train.epoch=2", "num_epochs is given twice."),
    ],
)
def test_what_is_wrong(attributes: str, message: str) -> None:
    (fault,) = check_attributes(train(attributes)).faults
    assert f"{fault.message} {fault.hint}".strip() == message


def test_all_faults_are_shown_at_their_places() -> None:
    text = "SELECT 1 TO TRAIN X WITH num_epoch=3,\n num_workers=x LABEL a INTO b"
    statement = parse_one(text).statement
    assert isinstance(statement, Train)
    assert render(StatementError(check_attributes(statement).faults), text) == (
        "line 1, column 26: 'num_epoch' is not an attribute of TO TRAIN.\n"
        "1 | SELECT 1 TO TRAIN X WITH num_epoch=3,\n"
        "                             ^^^^^^^^^ Did you mean num_epochs?\n"
        "line 2, column 14: num_workers is a whole number, not x.\n"
        "2 |  num_workers=x LABEL a INTO b\n"
        "                 ^"
    )


def test_arguments_of_a_trained_model_are_refused() -> None:
    statement = parse_one("SELECT 1 TO PREDICT t WITH model.units=3 USING m").statement
    assert isinstance(statement, Predict)
    (fault,) = check_attributes(statement).faults
    assert fault.message == "model.units is an argument of the model, which is trained already."
