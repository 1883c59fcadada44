"""A Keras embedding whose table is elsewhere."""

from __future__ import annotations

from typing import Any

import keras

from elasticdl.layers import serving
from elasticdl.shared.errors import UserError


@keras.saving.register_keras_serializable(package="elasticdl")
class ServedEmbedding(keras.layers.Embedding):  # type: ignore[misc]
    """A ``keras.layers.Embedding`` without a table.

    In a job, instances of Keras' class become one. Keras constructs it from the file of a model without its tables.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.__dict__["_construction"] = serving.construction()
        if self._construction is None:
            raise ValueError(
                f"the table of embedding {self.name!r} is not in this file. Load the export with "
                "elasticdl.layers.load_model(FOLDER)."
            )
        self._construction.register(self)

    def build(self, input_shape: Any = None) -> None:
        """There is no table to be made."""

    def call(self, inputs: Any) -> Any:
        """As Keras', with rows from the lookup in force."""
        if keras.backend.standardize_dtype(inputs.dtype) not in ("int32", "int64"):
            inputs = keras.ops.cast(inputs, "int32")
        return keras.ops.cast(serving.rows(self, inputs), dtype=self.compute_dtype)

    @property
    def embeddings(self) -> Any:
        """There is no table to be used directly."""
        raise self._used("uses .embeddings")

    def save_own_variables(self, store: Any) -> None:
        """Keras' hook: the number of the table is in the place of the table."""
        serving.save_number(self, store)

    def load_own_variables(self, store: Any) -> None:
        """Keras' hook, the inverse."""
        serving.load_number(self, store)

    def set_weights(self, weights: Any) -> None:  # noqa: ARG002 (Keras' signature)
        """There is no table to be set."""
        raise self._used("sets its weights")

    def get_weights(self) -> Any:
        """There is no table to be read."""
        raise self._used("reads its weights")

    def _used(self, how: str) -> UserError:
        self._construction.keep_dense(self, f"the model {how}")
        return UserError(f"embedding {self.name!r}: the model {how}, so its table can't be served by the ps")
