"""Code of the model file that hangs: the worker is replaced, and the message says where and at which records."""

from __future__ import annotations

import pytest
from tests.e2e.elastic import Elastic, check_exact
from tests.e2e.failing import fails
from tests.e2e.models import LINEAR, write_data, write_model

FLAGS = ["--model_def=model.py", "--training_data=data", "--shuffle=none", "--batch_deadline_secs=5"]
HANG = """

def hang_at_once(column):
    if column.max() > 100:
        import pathlib, time
        marker = pathlib.Path(__file__).with_name("has_hung")
        if {always} or not marker.exists():
            marker.touch()
            while True:
                time.sleep(60)
"""
HUNG_RECORD = 700
RECORDS = "records 640 to 703 (from 0) of file://"


CALLBACK = """

class Own(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        import numpy
        hang_at_once(numpy.array([1000.0]))


def callbacks():
    return [Own()]
"""


def hanging(where: str, *, always: bool) -> str:
    """A model file whose code hangs on the record ``HUNG_RECORD``, in its feed or its loss, or in its callback."""
    call = "    tf.numpy_function(hang_at_once, [{}], [])\n"
    text = LINEAR
    if where == "feed":
        text = text.replace("    features = tf.stack", call.format("records['a']") + "    features = tf.stack")
    elif where == "callback":
        text += CALLBACK
    else:
        text = text.replace("    return tf.reduce_mean", call.format("labels") + "    return tf.reduce_mean")
    return text + HANG.format(always=always)


def write_hanging(elastic: Elastic, where: str, *, always: bool) -> None:
    write_model(elastic.folder, hanging(where, always=always))
    data = write_data(elastic.folder)
    lines = data.read_text().splitlines()
    lines[HUNG_RECORD + 1] = "1000.0,0.1,0.1,1000.0"
    data.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("where", ["feed", "loss", "callback"])
def test_one_worker_whose_code_hangs_once_is_replaced_and_the_job_ends_exact(elastic: Elastic, where: str) -> None:
    write_hanging(elastic, where, always=False)
    outcome = elastic.train(*FLAGS, "--num_workers=1", "--num_epochs=2")
    check_exact(outcome)
    for words in ("worker-0 hung and ended itself", "no progress within the batch deadline of 5 s", "in hang_at_once"):
        assert words in outcome.output
    assert outcome.report["worker_seconds"]["stalled"] > 0


@pytest.mark.thorough
def test_code_that_blocks_all_threads_ends_the_job_with_the_records(elastic: Elastic) -> None:
    write_hanging(elastic, "feed", always=True)
    model = elastic.folder / "model.py"
    model.write_text(model.read_text().replace("time.sleep(60)", "__import__('ctypes').PyDLL(None).sleep(60)"))
    says = ["5 workers were killed because they were unresponsive while running the same batch", RECORDS]
    fails(elastic, *FLAGS, "--num_workers=1", says=says)


def test_a_feed_that_hangs_in_both_workers_ends_the_job_with_the_records_and_the_place(elastic: Elastic) -> None:
    write_hanging(elastic, "feed", always=True)
    says = ["2 workers hung while running the same batch", RECORDS, "model.py", "in hang_at_once", "time.sleep(60)"]
    fails(elastic, *FLAGS, "--num_workers=2", says=says)


@pytest.mark.thorough
def test_a_model_that_hangs_only_in_restarted_workers_ends_the_job_with_the_place(elastic: Elastic) -> None:
    write_model(elastic.folder, hanging_start())
    write_data(elastic.folder)
    says = ["worker-0 failed 6 times in a row", "while loading the model file", "model.py", "in hang_at_once"]
    fails(elastic, *FLAGS[:-1], "--batch_deadline_secs=3", "--num_workers=1", says=says)


def hanging_start() -> str:
    """A model file that kills the first process that trains, and hangs in each one that builds the model after that."""
    hang = "    if pathlib.Path(__file__).with_name('has_died').exists():\n        hang_at_once()\n"
    begin, feed = "def custom_model():\n", "    features = tf.stack"
    text = LINEAR.replace(begin, begin + hang).replace(feed, "    tf.numpy_function(die, [], [])\n" + feed)
    return "import os, pathlib, signal, time\n" + text + DIES


DIES = """

def hang_at_once():
    while True:
        time.sleep(60)


def die():
    marker = pathlib.Path(__file__).with_name("has_died")
    if os.environ.get("ELASTICDL_POD", "").startswith("worker") and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
