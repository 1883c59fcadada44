"""The zoo's DeepFM with Adagrad: what ``deepfm.py`` of this folder trains, as a job and in a single process."""

import importlib.util
from pathlib import Path

import keras

_PATH = Path(__file__).parents[1] / "model_zoo" / "deepfm.py"
_SPEC = importlib.util.spec_from_file_location("deepfm", _PATH)
assert _SPEC is not None and _SPEC.loader is not None, _PATH
_ZOO = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_ZOO)

custom_model, loss, feed_batch, eval_metrics_fn = _ZOO.custom_model, _ZOO.loss, _ZOO.feed_batch, _ZOO.eval_metrics_fn


def optimizer() -> keras.optimizers.Optimizer:
    """The same as in ``single_process.py``."""
    return keras.optimizers.Adagrad(0.02)
