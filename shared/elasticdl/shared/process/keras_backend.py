"""The backend of Keras: jobs run on TensorFlow, whatever Keras is set to elsewhere."""

from __future__ import annotations

KERAS_BACKEND = "KERAS_BACKEND"
"""The environment variable that Keras reads; it comes before Keras' own settings file."""
TENSORFLOW = "tensorflow"
