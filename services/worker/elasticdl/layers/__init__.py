"""Keras layers for the user's model file.

May import Keras and TensorFlow; must not import the worker: without it the layers are ordinary Keras layers.
"""

from elasticdl.layers.embedding import Embedding

__all__ = ["Embedding"]
