"""Refuses other backends of Keras than TensorFlow, before anything else of this package fails on them."""

from __future__ import annotations

from elasticdl.shared.process.keras_backend import KERAS_BACKEND, TENSORFLOW

_REMEDY = (
    f"elasticdl.layers needs Keras on TensorFlow. Set {KERAS_BACKEND}={TENSORFLOW} in the environment before Keras is "
    "imported, or the backend in ~/.keras/keras.json."
)


def require_tensorflow() -> None:
    """Check the backend.

    Raises:
        ImportError: Keras uses another one, or can't import another one that it is set to.
    """
    try:
        import keras
    except ModuleNotFoundError as error:
        if error.name in ("keras", TENSORFLOW):
            raise
        raise ImportError(f"{_REMEDY} It is set to another backend: {error}.") from error
    if (backend := keras.backend.backend()) != TENSORFLOW:
        raise ImportError(f"{_REMEDY} It is on {backend} now.")
