"""An export that fails: before training if it can be known, else with the weights and a way to the model."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
from tests.e2e.elastic import Elastic
from tests.e2e.failing import FLAGS, fails
from tests.e2e.models import LINEAR, slowly, write_data, write_model

LAYER = """
import numpy as np
import tensorflow as tf
from keras import layers


class Bias(layers.Layer):
    def build(self, shape):
        self.bias = self.add_weight(shape=(1,), initializer="zeros", name="bias")

    def call(self, x):
        return x + self.bias
"""
RAISES = """
    def get_config(self):
        if np.any(np.asarray(self.bias)):
            raise KeyError("no configuration once it is trained")
        return super().get_config()
"""
TABLE = """
    def call(self, x):
        values = tf.lookup.KeyValueTensorInitializer(tf.constant([1, 2], tf.int64), tf.constant([1.0, 2.0]))
        return tf.lookup.StaticHashTable(values, 0.0).lookup(tf.cast(x, tf.int64)) + self.bias
"""
LOAD = """
import json, keras, numpy, model
made = model.custom_model()
made.load_weights("output/trained.weights.h5")
ones = numpy.ones((1, 3), "float32")
whole = keras.models.load_model("fixed/model.keras", custom_objects={"Bias": model.Bias}, compile=False)
print(json.dumps([float(each.predict(ones, verbose=0)[0, 0]) for each in (made, whole)]))
"""


def model(methods: str) -> str:
    layered = LINEAR.replace("keras.layers.Dense(1)(inputs)", 'Bias(name="shift")(keras.layers.Dense(1)(inputs))')
    assert layered != LINEAR
    return LAYER + methods + layered


def test_a_table_that_no_layer_holds_is_refused_before_training(elastic: Elastic) -> None:
    write_model(elastic.folder, model(TABLE))
    write_data(elastic.folder)
    says = ["model.py: layer 'shift' can't be written as saved_model: it uses a lookup table", "self.table = ..."]
    fails(elastic, *FLAGS, "--output=output", says=says)
    assert not elastic.jobs.exists() or not list(elastic.jobs.iterdir())


def test_a_failed_export_leaves_the_weights_and_is_repeated_with_a_fixed_model_file(elastic: Elastic) -> None:
    write_model(elastic.folder, model(RAISES))
    write_data(elastic.folder)
    says = [
        "writing model.keras of model.py raised KeyError at model.py:16",
        "The weights are in trained.weights.h5 of the output",
        "The model is trained. Fix the model file, then export it without training: elasticdl export ",
    ]
    fails(elastic, *FLAGS, "--output=output", says=says)
    assert [path.name for path in (elastic.folder / "output").iterdir()] == ["trained.weights.h5"]
    again = elastic.run("export", elastic.job)
    assert again.exit_code == 1
    assert "raised KeyError" in again.output

    write_model(elastic.folder, model("").replace("shape=(1,)", "shape=(1, 1)"))
    other = elastic.run("export", elastic.job)
    assert other.exit_code == 1
    assert "model.py makes another model than the one that job" in other.output
    assert "shift/bias (1, 1) (there (1,))" in other.output

    write_model(elastic.folder, model(""))
    fixed = elastic.run("export", elastic.job, "--output=fixed")
    assert fixed.exit_code == 0, fixed.output
    assert "model.py changed since job" in fixed.output
    command = [sys.executable, "-W", "ignore", "-c", LOAD]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elastic.folder)
    assert done.returncode == 0, done.stderr[-2000:]
    weights, whole = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(weights, whole, rtol=1e-6)


def test_a_crash_of_the_export_leaves_the_weights(elastic: Elastic) -> None:
    # Only trained weights crash it, so that the trial before training passes.
    crash = """
    def get_config(self):
        if np.any(np.asarray(self.bias)):
            os.abort()
        return super().get_config()
"""
    write_model(elastic.folder, "import os\n" + model(crash))
    write_data(elastic.folder)
    says = [
        "2 workers crashed (SIGABRT) while writing the model:",
        "they are in trained.weights.h5 of the output.",
        "The model is trained. Fix the model file, then export it without training: elasticdl export ",
    ]
    fails(elastic, *FLAGS, "--output=output", says=says)
    assert [path.name for path in (elastic.folder / "output").glob("[!.]*")] == ["trained.weights.h5"]


def test_a_model_that_another_job_has_written_meanwhile_is_kept(elastic: Elastic) -> None:
    write_model(elastic.folder, slowly(LINEAR, 1.0))
    (elastic.folder / "fast.py").write_text(LINEAR)
    write_data(elastic.folder)
    with elastic.start("train", *FLAGS, "--output=output", "--num_epochs=5", "--job_name=first") as first:
        first.wait_for_progress()
        second = [flag for flag in FLAGS if not flag.startswith("--model_def")]
        elastic.train("--model_def=fast.py", *second, "--output=output", "--job_name=second")
        written = (elastic.folder / "output" / "model.keras").read_bytes()
        elastic.remove_delay()
        assert first.wait() == 1, first.output
    assert "output holds the model of job second-" in first.output
    assert "elasticdl export first-" in first.output
    refused = elastic.run("export", "first")
    assert refused.exit_code == 1 and "output holds the model of job second-" in refused.output
    assert (elastic.folder / "output" / "model.keras").read_bytes() == written
    exported = elastic.run("export", "first", "--output=other")
    assert exported.exit_code == 0, exported.output
    assert (elastic.folder / "other" / "model.keras").exists()


PREDICTS = """
import keras
import numpy
from model import Scaled, custom_model

made = custom_model()
made.load_weights("output/model.keras")
print(float(made.predict(numpy.ones((1, 3), "float32"), verbose=0)[0, 0]))
"""
SCALED = """
import keras

SCALE = 2.0


class Scaled(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units
        self.dense = keras.layers.Dense(units)

    def call(self, x):
        return self.dense(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}
"""


def test_a_model_that_keras_can_not_load_is_used_with_its_weights_whatever_backend_keras_is_set_to(
    elastic: Elastic,
) -> None:
    settings = elastic.folder / ".keras"
    settings.mkdir()
    (settings / "keras.json").write_text('{"backend": "jax"}')
    elastic.environment.update(KERAS_BACKEND="torch", KERAS_HOME=str(settings))
    layers = "keras.layers.Lambda(lambda x: x * SCALE)(Scaled(1)(inputs))"
    write_model(elastic.folder, SCALED + LINEAR.replace("keras.layers.Dense(1)(inputs)", layers))
    write_data(elastic.folder)
    trained = elastic.train(*FLAGS, "--output=output")
    assert "KERAS_BACKEND=torch has no effect on the job" in trained.output
    assert "model.keras does not load as a model, as Scaled.__init__() does not take '" in trained.output
    assert "saved_model loads, and so do the weights: custom_model().load_weights(" in trained.output

    (elastic.folder / "ones").mkdir()
    (elastic.folder / "ones" / "ones.csv").write_text("a,b,c\n1,1,1\n")
    feed = "        return features\n    return features, tf.cast"
    text = (elastic.folder / "model.py").read_text()
    write_model(elastic.folder, text.replace("    return features, tf.cast", f"    if mode == 'predict':\n{feed}"))
    flags = ["--model=output", "--model_def=model.py", "--num_workers=1"]
    predicted = elastic.run("predict", *flags, "--prediction_data=ones", "--output=predicted", "--output_format=csv")
    assert predicted.exit_code == 0, predicted.output
    assert "output/model.keras can't be loaded as a model, as Scaled.__init__() does not take '" in predicted.output
    (part,) = (elastic.folder / "predicted").glob("part-*")
    command = [sys.executable, "-W", "ignore", "-c", PREDICTS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elastic.folder)
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(float(part.read_text().split()[1]), float(done.stdout), rtol=1e-5)

    evaluated = elastic.run("evaluate", *flags, "--validation_data=data")
    assert evaluated.exit_code == 0, evaluated.output
