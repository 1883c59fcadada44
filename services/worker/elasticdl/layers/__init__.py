"""Keras layers, and what belongs to them, for the user's model file.

May import Keras and TensorFlow; must not import the worker: without it the layers are ordinary Keras layers.
"""

from elasticdl.layers.adapting import adapt
from elasticdl.layers.embedding import Embedding
from elasticdl.layers.exported import load_model

__all__ = ["Embedding", "adapt", "load_model"]
