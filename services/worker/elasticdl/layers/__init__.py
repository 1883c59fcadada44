"""Keras layers, and what belongs to them, for the user's model file.

May import Keras and TensorFlow; must not import the worker: without it the layers are ordinary Keras layers.
"""

from elasticdl.layers.backend import require_tensorflow

require_tensorflow()

from elasticdl.layers.adapting import adapt  # noqa: E402
from elasticdl.layers.embedding import Embedding  # noqa: E402
from elasticdl.layers.exported import load_model  # noqa: E402

__all__ = ["Embedding", "adapt", "load_model"]
