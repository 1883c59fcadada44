"""A Keras model that is passed as an object: written for other processes, or refused with what to do."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import yaml

from elasticdl.api import train
from elasticdl.api.passed_model import model_file
from elasticdl.cli.kubernetes.new_job.model_files import collect
from elasticdl.cli.kubernetes.new_job.start import start
from elasticdl.shared.errors import UserError
from elasticdl.shared.job.kind_options import TrainFlags
from elasticdl.shared.job.model_file import ModelFile, check_syntax
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.worker.model.user.module import load

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


WITH_LAYER = """
import keras

@keras.saving.register_keras_serializable("scaled")
class Scaled(keras.layers.Layer):
    def call(self, x):
        return x * helper_of_layer.FACTOR
import helper_of_layer
"""


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # It was saved before its first step.
def test_on_kubernetes_the_model_travels_in_the_config_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("layer_of_user.py").write_text(WITH_LAYER)
    Path("helper_of_layer.py").write_text("FACTOR = 3.0\n")
    Path("unused_by_user.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    model = model_of(importlib.import_module("layer_of_user").Scaled())
    with model_file(model) as path:
        flags = TrainFlags(
            model_def=str(path), training_data="s3://data/x.csv", storage="s3://data/jobs", platform="kubernetes"
        )
        file = tmp_path / "objects.yaml"
        assert start(flags, KubernetesFlags(yaml=str(file), namespace="team", image_name="worker:1"), 0.0) == 0
    objects = {each["kind"]: each for each in yaml.safe_load_all(file.read_text())}
    (volume,) = (each for each in objects["Job"]["spec"]["template"]["spec"]["volumes"] if each["name"] == "model")
    mounted, content = tmp_path / "mounted", objects["ConfigMap"]
    mounted.mkdir()
    for item in volume["configMap"]["items"]:
        key = item["key"]
        binary = base64.b64decode(content["binaryData"][key]) if key in content["binaryData"] else b""
        (mounted / item["path"]).write_bytes(binary or content["data"][key].encode())
    assert {each.name for each in mounted.iterdir()} == {
        "net.py",
        "model.keras",
        "layer_of_user.py",
        "helper_of_layer.py",
    }

    monkeypatch.syspath_prepend(str(mounted))
    loaded = load(ModelFile(path=mounted / "net.py")).make_model()
    for mine, theirs in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(theirs, mine)
    assert loaded.compiled


def test_a_model_that_is_too_large_for_the_config_map_is_refused() -> None:
    with (
        model_file(model_of(keras.layers.Dense(60_000))) as path,
        pytest.raises(UserError, match="takes 900,000 of a model that is passed as an object"),
    ):
        collect(str(path), "")
