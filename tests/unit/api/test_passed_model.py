"""A Keras model that is passed as an object: written for other processes, or refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import pytest

from elasticdl.api import predict, train
from elasticdl.api.passed_model import model_file
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.model_file import ModelFile, check_syntax

pytestmark = pytest.mark.tensorflow


def model_of(*layers: Any, loss: Any = "mse", name: str = "net") -> Any:
    model = keras.Sequential([keras.Input((3,)), *layers, keras.layers.Dense(1)], name=name)
    model.compile("adam", loss, metrics=["mae"])
    return model


def test_a_path_stays_a_path() -> None:
    for path in ("a.py", Path("b.py"), "module.symbol"):
        with model_file(path) as value:
            assert value is path


def test_the_file_is_named_like_the_model_and_gone_afterwards() -> None:
    with model_file(model_of(name="My Net-2")) as path:
        assert path.name == "my_net_2.py"
        check_syntax(ModelFile(path=path))
        assert keras.saving.load_model(path.with_name("model.keras"), compile=False).name == "My Net-2"
    assert not path.parent.exists()


def local_loss(labels: Any, predictions: Any) -> Any:
    return keras.ops.mean((labels - predictions) ** 2, -1)


@keras.saving.register_keras_serializable("test")
class Registered(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x


class Local(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return x


InNotebook = keras.saving.register_keras_serializable("test")(type("InNotebook", (Local,), {"__module__": "__main__"}))


def not_compiled() -> Any:
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)], name="net")


def not_built() -> Any:
    model = keras.Sequential([keras.layers.Dense(1)], name="net")
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 3, "the model is int; give a Keras model or the path of a model file"),
        (not_compiled, r"'net' is not compiled\n  Call its compile\(\) first"),
        (not_built, "'net' has no weights yet"),
        (lambda: model_of(loss=local_loss), "can't load local_loss"),
        (lambda: model_of(Local()), "can't load Local"),
        (lambda: model_of(InNotebook()), "can't load InNotebook"),
    ],
)
def test_what_other_processes_can_not_load_is_refused(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(make(), "data", run_dir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
def test_a_lambda_is_refused() -> None:
    model = model_of(keras.layers.Lambda(lambda x: x))
    with pytest.raises(UserError, match="can't load a lambda"), model_file(model):
        pass


def test_modules_of_own_layers_are_imported() -> None:
    with model_file(model_of(Registered())) as path:
        assert f"import {__name__}\n" in path.read_text()


def test_a_cluster_takes_model_files_only() -> None:
    with pytest.raises(UserError, match="can't be sent to Kubernetes"):
        predict(model_of(), "out", "data", "predictions", platform="kubernetes")
