"""The same model has the same fingerprint in every process."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import tensorflow as tf
from elasticdl.worker.model.fingerprint.graphs import TracedGraph

@tf.function
def loop(x):
    return tf.while_loop(lambda step, x: step < 5, lambda step, x: (step + 2, x * 3.0 + 4.0), (1, x))

graph = loop.get_concrete_function(tf.TensorSpec((), tf.float32)).graph
print([(name, entry.digest) for name, entry in TracedGraph("loop", graph, graph.outputs).entries()])
"""
PROCESSES = 4
"""TensorFlow lists the attributes of a loop, such as its condition and its body, in another order in each of them."""


def test_a_loop_has_the_same_fingerprint_in_every_process() -> None:
    command = [sys.executable, "-c", CODE]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    printed = {process.communicate(timeout=120)[0] for process in processes}
    assert len(printed) == 1
    assert "constant" in printed.pop()
