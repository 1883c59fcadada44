"""``elasticdl run`` with data that workers read by number: batches of a ``PyDataset``, files of text, windows."""

from __future__ import annotations

import os
import signal

import pytest
from tests.e2e.elastic import Elastic
from tests.e2e.test_script import DATA, reports, results_of, write_script

PY_DATASET = (
    DATA
    + """
import os
import time


class Batches(keras.utils.PyDataset):
    def __init__(self, first, last, is_slow):
        super().__init__()
        self.rows, self.is_slow = np.arange(first, last), is_slow

    def __len__(self):
        return -(-len(self.rows) // 16)

    def __getitem__(self, number):
        if self.is_slow and not os.path.exists("remove_delay"):
            time.sleep(0.4)
        rows = self.rows[16 * number : 16 * number + 16]
        return scaled(x[rows]), y[rows], np.ones(len(rows))

    def on_epoch_end(self):
        np.random.shuffle(self.rows)


model = keras.Sequential([keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.02), "mse")
history = model.fit(Batches(0, 1000, "slow" in sys.argv), epochs=4, validation_data=Batches(1000, 1200, False))
mse = model.evaluate(scaled(x[1000:]), y[1000:], verbose=0)
open("results.json", "w").write(json.dumps({"history": history.history, "mse": mse}))
"""
)


@pytest.mark.thorough
def test_batches_of_a_py_dataset_are_read_in_the_workers_and_survive_kills_and_a_resume(elastic: Elastic) -> None:
    write_script(elastic, PY_DATASET)
    with elastic.start("run", "--num_workers=2", "script.py", "slow") as running:
        running.wait_for_progress()
        for pid in elastic.pids("worker-0", "ps-0"):
            os.kill(pid, signal.SIGKILL)
        running.wait_for(r"epoch 1/4: ")
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 130, running.output
        line = running.wait_for(r"To continue this job and then the script: elasticdl (run .*)")
    elastic.remove_delay()
    resumed = elastic.run(*line.group(1).split())
    assert resumed.exit_code == 0, resumed.output
    (report,) = reports(elastic)
    assert report["audit"]["exact"] is True
    assert [epoch["records"] for epoch in report["history"]["epochs"]] == [63] * 4
    results = results_of(elastic)
    losses = results["history"]["val_loss"]
    assert losses[0] > losses[-1] == pytest.approx(results["mse"], rel=1e-4)


TEXTS = (
    DATA
    + """
import pathlib

for number in range(200):
    folder = pathlib.Path("texts", "good" if number % 2 else "bad")
    folder.mkdir(parents=True, exist_ok=True)
    words = rng.choice(["nice", "fine"] if number % 2 else ["poor", "dull"], 5)
    (folder / f"{number}.txt").write_text(" ".join(words))


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.body = keras.Sequential([keras.layers.Embedding(10, 4), keras.layers.GlobalAveragePooling1D()])
        self.head = keras.layers.Dense(2, "softmax")

    def call(self, ids):
        return self.head(self.body(ids))

    def train_step(self, data):
        return super().train_step(data)


options = {"validation_split": 0.2, "seed": 1, "batch_size": 16}
train = keras.utils.text_dataset_from_directory("texts", subset="training", **options)
test = keras.utils.text_dataset_from_directory("texts", subset="validation", **options)
vectorize = keras.layers.TextVectorization(max_tokens=10, output_sequence_length=5)
vectorize.adapt(train.map(lambda text, label: text))
train, test = (one.map(lambda text, label: (vectorize(text), label)).prefetch(1) for one in (train, test))
model = Net()
model.compile(keras.optimizers.Adam(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
stop = keras.callbacks.EarlyStopping("val_accuracy", patience=1)
history = model.fit(train, validation_data=test, epochs=9, callbacks=[stop])

windows = keras.utils.timeseries_dataset_from_array(np.sin(np.arange(500.0)), None, 8, batch_size=20)
series = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])
series.compile(keras.optimizers.Adam(0.05), lambda _, outputs: keras.ops.mean(keras.ops.square(outputs)))
forecast = series.fit(windows.map(lambda steps: (steps[:, :8], steps[:, :1])), epochs=2, verbose=0)
steps = windows.take(1).get_single_element().numpy()
exported = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8)])
exported.load_weights(max(pathlib.Path("jobs").glob("*/output/*.h5"), key=lambda file: file.stat().st_mtime))
differs = np.abs(series.predict(steps, verbose=0) - exported.predict(steps, verbose=0)).max()
results = {"history": history.history, "forecast": forecast.history, "differs": float(differs)}
open("results.json", "w").write(json.dumps(results))
"""
)


@pytest.mark.thorough
def test_files_of_text_and_windows_are_read_by_the_workers(elastic: Elastic) -> None:
    write_script(elastic, TEXTS)
    outcome = elastic.run("run", "--num_workers=2", "script.py")
    assert outcome.exit_code == 0, outcome.output
    texts, windows = reports(elastic)
    assert [report["audit"]["exact"] for report in (texts, windows)] == [True, True]
    assert {epoch["records"] for epoch in texts["history"]["epochs"]} == {160}
    assert [epoch["records"] for epoch in windows["history"]["epochs"]] == [493] * 2
    results = results_of(elastic)
    accuracies = results["history"]["val_accuracy"]
    assert accuracies[-1] > 0.9
    assert len(accuracies) < 9
    assert results["forecast"]["loss"][0] > results["forecast"]["loss"][1]
    assert results["differs"] < 1e-6
    assert not list(elastic.jobs.glob("*/*stream*"))
