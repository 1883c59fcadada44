"""What a worker imports before it builds a model, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import sys

import pytest
from elasticdl.worker.model_imports import import_model_code
import_model_code()
print([name for name in ("sklearn", "matplotlib") if name in sys.modules])
import keras, tensorflow as tf
print(keras.visualization.plot_image_gallery.__name__)
print(keras.wrappers.SKLearnClassifier is tf.keras.wrappers.SKLearnClassifier)
import keras.wrappers
print(keras.wrappers.__file__ == sys.modules["keras.wrappers"].__file__)
import elasticdl.shared.data.order_kernels as kernels
print(bool(kernels.permute.signatures))
"""


def test_plots_and_wrappers_of_keras_are_imported_when_a_model_file_uses_them() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "plot_image_gallery", "True", "True", "True"]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_the_layers_say_which_backend_they_need(backend: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", "import elasticdl.layers"]
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: elasticdl.layers needs Keras on TensorFlow. Set KERAS_BACKEND=tensorflow in")
