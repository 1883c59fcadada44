"""``elasticdl run``: a Keras script runs unchanged, each fit() is a job, and the lines after it see a trained model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.elastic import Elastic

DATA = """
import json
import os
import sys

import keras
import numpy as np
import tensorflow as tf
from helpers import scaled

rng = np.random.default_rng(0)
x = rng.normal(size=(1200, 6)).astype("float32")
y = (x[:, :1] * 2 + x[:, 1:2]).astype("float32")
"""
SUBCLASSED = (
    DATA
    + """
print("the script begins")
open("effects.txt", "a").write("once ")
created = []


class Wide(keras.layers.Layer):
    def __init__(self, units, function):
        super().__init__()
        self.dense, self.function = keras.layers.Dense(units), function

    def call(self, inputs):
        return self.function(self.dense(inputs))


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        created.append(1)
        self.wide = Wide(16, lambda inputs: keras.ops.tanh(scaled(inputs)))
        self.head = keras.layers.Dense(1)

    def call(self, inputs):
        return self.head(self.wide(inputs["features"]))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.ops.square(y - y_pred)) + 1.0


def far_off(labels, predictions):
    return keras.ops.mean(keras.ops.cast(keras.ops.abs(labels - predictions) > 1.0, "float32"))


class Shows(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        self.losses.append(logs["loss"])
        open("shown.txt", "w").write("once")
        print("in a callback", np.square(self.model.predict(test[0], verbose=0) - test[1]).mean())


data = tf.data.Dataset.from_tensor_slices(({"features": x[:1000]}, y[:1000])).shuffle(1000).batch(20)
test = ({"features": x[1000:]}, y[1000:])
model = Net()
model.compile(keras.optimizers.Adam(0.01), metrics=[far_off])
stop = keras.callbacks.EarlyStopping("val_loss", patience=5)
first = model.fit(data, epochs=3, validation_data=test, callbacks=[stop])
os.mkdir("elsewhere")
os.chdir("elsewhere")
shows = Shows()
second = model.fit({"features": x}, y, epochs=1, batch_size=20, verbose=0, callbacks=[shows])
os.chdir("..")
errors = np.square(model.predict(test[0], verbose=0) - test[1])

plain = keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(1)])
plain.compile(keras.optimizers.Adam(0.01), "mse")
for epoch in range(4):
    for batch in data:
        plain.train_on_batch(batch[0]["features"], batch[1])
print("after fit", sys.argv[1:])
results = {
    "first": first.history,
    "second": second.history,
    "epochs": first.epoch,
    "error": float(errors.mean()),
    "plain": float(plain.evaluate(x[1000:], y[1000:], verbose=0)),
    "arguments": sys.argv[1:],
    "created": len(created),
    "updates": int(model.optimizer.iterations),
    "losses": shows.losses,
    "moments": float(np.abs(model.optimizer.variables[2].numpy()).sum()),
}
open("results.json", "w").write(json.dumps(results))
sys.exit(3)
"""
)
SLOW = (
    DATA
    + """
import time


class Slow(keras.layers.Layer):
    def call(self, inputs):
        def wait(values):
            if not os.path.exists("remove_delay"):
                time.sleep(0.02)
            return values

        waited = tf.numpy_function(wait, [inputs], tf.float32)
        waited.set_shape(inputs.shape)
        return inputs + tf.stop_gradient(waited - inputs)

    def compute_output_shape(self, shape):
        return shape


model = keras.Sequential([keras.Input((6,)), Slow(), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile("adam", "mse")
before = model.get_weights()
try:
    history = model.fit(x, y, epochs=4, batch_size=8)
except Exception:
    raise SystemExit(7)
except KeyboardInterrupt:
    moved = min(np.abs(now - then).max() for now, then in zip(model.get_weights(), before))
    print("stopped by hand", int(model.optimizer.iterations), moved > 0)
    raise
open("results.json", "w").write(json.dumps({"history": history.history, "mse": float(model.evaluate(x, y, verbose=0))}))
"""
)

OWN_STEP = (
    DATA
    + """
keras.utils.set_random_seed(int(sys.argv[1]))


class Sampling(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)

    def call(self, inputs):
        mean, deviation = inputs
        return mean + keras.ops.exp(deviation) * keras.random.normal(keras.ops.shape(mean), seed=self.seed_generator)


class Autoencoder(keras.Model):
    def __init__(self):
        super().__init__()
        self.mean, self.deviation, self.decoder = (keras.layers.Dense(units) for units in (3, 3, 6))
        self.sampling = Sampling()
        self.total = keras.metrics.Mean(name="total")

    def parts(self, data):
        mean, deviation = self.mean(data), self.deviation(data)
        error = keras.ops.mean(keras.ops.square(self.decoder(self.sampling([mean, deviation])) - data))
        return error, keras.ops.mean(keras.ops.square(mean) + keras.ops.exp(2 * deviation) - 2 * deviation - 1)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            error, distance = self.parts(data)
            loss = error + 0.02 * distance
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.total.update_state(loss)
        return {"loss": self.total.result(), "distance": distance}

    def test_step(self, data):
        return {"error": self.parts(data)[0]}


model = Autoencoder()
model.compile(keras.optimizers.Adam(0.02))
history = model.fit(x, epochs=8, batch_size=24, validation_split=0.25)
open("results.json", "w").write(json.dumps({"history": history.history}))
"""
)


GENERATOR = (
    DATA
    + """
import itertools
import warnings


def batches():
    for number in itertools.count():
        yield np.full((1 + number % 3, 6), float(number)), np.zeros((1 + number % 3, 1))


class Numbers(keras.metrics.Metric):
    def __init__(self, name="numbers", **options):
        super().__init__(name=name, **options)
        self.total, self.count = (self.add_weight(name=name, initializer="zeros") for name in ("total", "count"))

    def update_state(self, labels, predictions, sample_weight=None):
        self.total.assign_add(keras.ops.mean(predictions))
        self.count.assign_add(1.0)

    def result(self):
        return self.total / self.count


model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(1, kernel_initializer="ones", trainable=False)])
model.add(keras.layers.Rescaling(1 / 6))
model.add(keras.layers.Dense(1, use_bias=False, kernel_initializer="ones"))
model.compile(keras.optimizers.Adam(1e-12), "mse", metrics=[Numbers()])
generator = batches()
history = model.fit(generator, steps_per_epoch=20, epochs=3)
model.save("model.keras")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    loaded = keras.models.load_model("model.keras", custom_objects={"Numbers": Numbers})
results = {"seen": history.history["numbers"], "next": float(next(generator)[0][0, 0])}
results |= {"loaded": int(loaded.optimizer.iterations)}
open("results.json", "w").write(json.dumps(results))
"""
)


PAIR = """
import json

import keras
import numpy as np
import tensorflow as tf


class Pair(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.layers.Dense(2, kernel_initializer=keras.initializers.Constant(0.1))
        self.decoder = keras.layers.Dense(4, kernel_initializer=keras.initializers.Constant(0.2))
        self.first, self.second = keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam(0.01)

    def train_step(self, data):
        with tf.GradientTape(persistent=True) as tape:
            loss = keras.ops.mean(keras.ops.square(self.decoder(self.encoder(data)) - data))
        gradients = tape.gradient(loss, self.trainable_weights)
        self.first.apply(gradients[:2], self.trainable_weights[:2])
        self.second.apply(gradients[2:], self.trainable_weights[2:])
        return {"loss": loss}


def states(model):
    momentum = [float(one) for one in model.first.momentums[0].numpy().ravel()] if model.first.built else []
    return [{"iterations": int(model.first.iterations), "momentum": momentum},
            {"iterations": int(model.second.iterations)}]


x = np.random.default_rng(1).normal(size=(128, 4)).astype("float32")
model, plain, found = Pair(), Pair(), []
for one in (model, plain):
    one.compile("sgd")
for _ in range(2):
    model.fit(x, batch_size=32, epochs=2, shuffle=False, verbose=0)
    found.append(states(model))
for epoch in range(4):
    for start in range(0, 128, 32):
        plain.train_step(tf.constant(x[start : start + 32]))
open("results.json", "w").write(json.dumps({"states": found, "momentum": states(plain)[0]["momentum"]}))
"""


def write_script(elastic: Elastic, text: str) -> None:
    (elastic.folder / "script.py").write_text(text)
    (elastic.folder / "helpers.py").write_text("def scaled(values):\n    return values * 0.9\n")


def results_of(elastic: Elastic) -> dict[str, Any]:
    results: dict[str, Any] = json.loads((elastic.folder / "results.json").read_text())
    return results


def reports(elastic: Elastic) -> list[dict[str, Any]]:
    """The reports of all jobs, in the order of their calls of fit()."""
    folders = sorted(elastic.jobs.iterdir(), key=lambda folder: len(_before(folder)))
    return [json.loads((folder / "report.json").read_text()) for folder in folders]


def _before(folder: Path) -> list[str]:
    before: list[str] = json.loads((folder / "script.json").read_text())["before"]
    return before


def test_each_fit_of_a_script_is_a_job_and_the_lines_after_it_see_the_trained_model(elastic: Elastic) -> None:
    write_script(elastic, SUBCLASSED)
    outcome = elastic.run("run", "--seed=1", "script.py", "--rate", "0.1", "--dry_run=true")
    assert outcome.exit_code == 3, outcome.output
    assert "after fit ['--rate', '0.1', '--dry_run=true']" in outcome.output
    assert outcome.output.count("the script begins") == 1  # No other process runs the script.
    assert (elastic.folder / "effects.txt").read_text() == "once "
    results, (first, second) = results_of(elastic), reports(elastic)
    assert results["created"] == 1
    assert [report["audit"]["exact"] for report in (first, second)] == [True, True]
    records = [[epoch["records"] for epoch in report["history"]["epochs"]] for report in (first, second)]
    assert records == [[1000] * 3, [1200]]
    assert set(results["first"]) == {"loss", "far_off", "val_loss", "val_far_off"}
    assert results["epochs"] == [0, 1, 2]
    losses = [*results["first"]["loss"], *results["second"]["loss"]]
    assert losses[0] > losses[1] > losses[-1]
    assert 1.0 < results["second"]["loss"][0] < results["first"]["val_loss"][-1] + 0.1
    assert results["error"] == pytest.approx(results["second"]["loss"][0] - 1.0, abs=0.1)
    assert results["updates"] == 3 * 50 + 60  # The optimizer has its state, that of both jobs.
    assert results["moments"] > 0
    assert results["losses"] == pytest.approx(results["second"]["loss"])  # What a callback has noted comes back.
    assert (elastic.folder / "elsewhere" / "shown.txt").exists()
    assert results["error"] < 3 * results["plain"] + 0.05
    assert outcome.output.count("absorbed exactly once") == 1  # The second call is told to print nothing of its own.
    (shown,) = re.findall(r"^in a callback ([0-9.e-]+)$", outcome.output, re.MULTILINE)
    assert float(shown) == pytest.approx(results["error"], rel=1e-5)


@pytest.mark.thorough
def test_a_train_step_of_its_own_trains_as_in_fit(elastic: Elastic) -> None:
    write_script(elastic, OWN_STEP)
    outcome = elastic.run("run", "--num_workers=2", "script.py", "1")
    assert outcome.exit_code == 0, outcome.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    assert [epoch["records"] for epoch in report["history"]["epochs"]] == [900] * 8
    history = results_of(elastic)["history"]
    assert set(history) == {"loss", "distance", "val_loss", "val_error"}
    plain = []
    for seed in ("1", "2", "3"):
        subprocess.run([sys.executable, "script.py", seed], cwd=elastic.folder, check=True, capture_output=True)
        plain.append(results_of(elastic)["history"])
    for name in ("loss", "val_error"):
        finals = [each[name][-1] for each in plain]
        spread = max(finals) - min(finals)
        assert min(finals) - 3 * spread < history[name][-1] < max(finals) + 3 * spread


@pytest.mark.thorough
def test_a_train_step_of_its_own_trains_in_a_ring_and_the_progress_is_that_of_fit(elastic: Elastic) -> None:
    write_script(elastic, OWN_STEP)
    outcome = elastic.run("run", "--distribution_strategy=AllreduceStrategy", "--progress=fit", "script.py", "1")
    assert outcome.exit_code == 0, outcome.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    history = results_of(elastic)["history"]
    assert history["loss"][0] > history["loss"][-1]
    assert history["val_error"][0] > history["val_error"][-1]
    assert "Epoch 8/8" in outcome.output
    assert re.search(rf"38/38.* loss: {history['loss'][-1]:.4f} .*- val_error: ", outcome.output)
    assert "absorbed exactly once" not in outcome.output


@pytest.mark.thorough
def test_both_optimizers_of_a_step_come_back_from_a_ring_and_continue(elastic: Elastic) -> None:
    write_script(elastic, PAIR)
    outcome = elastic.run("run", "--distribution_strategy=AllreduceStrategy", "--num_workers=2", "script.py")
    assert outcome.exit_code == 0, outcome.output
    assert "does not have the state" not in outcome.output
    once, twice = results_of(elastic)["states"]
    assert [optimizer["iterations"] for optimizer in once] == [8, 8]
    assert [optimizer["iterations"] for optimizer in twice] == [16, 16]
    np.testing.assert_allclose(twice[0]["momentum"], results_of(elastic)["momentum"], rtol=1e-4)


@pytest.mark.thorough
def test_each_epoch_continues_a_generator(elastic: Elastic) -> None:
    write_script(elastic, GENERATOR)
    outcome = elastic.run("run", "script.py")
    assert outcome.exit_code == 0, outcome.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    assert "20 batches x 3 epochs" in outcome.output
    results = results_of(elastic)
    assert results["next"] == 60
    assert results["seen"] == pytest.approx([9.5, 29.5, 49.5])
    assert results["loaded"] == 60  # Keras warns if a file has less of the optimizer; warnings are errors there.


@pytest.mark.thorough
def test_the_script_of_the_tutorial_runs(elastic: Elastic) -> None:
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "your_script.md"
    (code,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (elastic.folder / "train.py").write_text(code)
    outcome = elastic.run("run", "--num_workers=2", "train.py")
    assert outcome.exit_code == 0, outcome.output
    assert (elastic.folder / "model.weights.h5").exists()


@pytest.mark.thorough
def test_a_script_does_not_notice_that_a_worker_and_the_ps_are_killed(elastic: Elastic) -> None:
    write_script(elastic, SLOW)
    with elastic.start("run", "--num_workers=2", "script.py") as running:
        running.wait_for_progress()
        for pid in elastic.pids("worker-0", "ps-0"):
            os.kill(pid, signal.SIGKILL)
        elastic.remove_delay()
        assert running.wait() == 0, running.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    assert report["audit"]["repaired"] == 0
    results = results_of(elastic)
    assert len(results["history"]["loss"]) == 4
    assert results["mse"] < results["history"]["loss"][0]


@pytest.mark.thorough
def test_an_interrupted_script_continues_at_its_fit(elastic: Elastic) -> None:
    write_script(elastic, SLOW)
    with elastic.start("run", "script.py") as running:
        running.wait_for_progress()
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
        line = running.wait_for(r"To continue this job and then the script: elasticdl (run .*)")
    # As Ctrl-C in Keras' own fit(): the model is trained so far.
    assert re.search(r"^stopped by hand [1-9]\d* True$", running.output, re.MULTILINE)
    assert "Traceback" not in running.output
    elastic.remove_delay()
    resumed = elastic.run(*line.group(1).split())
    assert resumed.exit_code == 0, resumed.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    assert report["resumes"] == 1
    assert len(results_of(elastic)["history"]["loss"]) == 4


@pytest.mark.thorough
def test_what_a_job_refuses_ends_the_script_with_its_own_name_and_leaves_nothing(elastic: Elastic) -> None:
    wrong = DATA + (
        "model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])\n"
        "model.compile('adam', 'mse')\n"
        "try:\n"
        "    model.fit(x, y)\n"
        "except Exception as error:\n"
        "    print('caught', error)\n"
        "    raise\n"
        "print('not reached')\n"
    )
    write_script(elastic, wrong)
    outcome = elastic.run("run", "script.py")
    assert outcome.exit_code == 1, outcome.output
    assert re.search(r"Error: \S+/script\.py: ", outcome.output) or "script.py" in outcome.output
    assert re.search(r"caught the job script-\w+ has ended with exit code 1: .*value 5, but received", outcome.output)
    assert "not reached" not in outcome.output
    assert "Traceback" not in outcome.output
    assert not list(elastic.jobs.glob("*"))
