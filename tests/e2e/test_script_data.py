"""``elasticdl run`` with data that workers read by number: batches of a ``PyDataset``."""

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
