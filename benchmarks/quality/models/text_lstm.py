"""Which of two classes a text has: a subclassed model that splits text into words, and an LSTM."""

from typing import Any

import keras
import tensorflow as tf

VOCABULARY, LENGTH = 2000, 40


class TextModel(keras.Model):  # type: ignore[misc]
    """Probability of class 1, (batch, 1), of texts (batch,)."""

    def __init__(self) -> None:
        super().__init__()
        words = [f"w{number}" for number in range(1, VOCABULARY)]
        self.words = keras.layers.TextVectorization(vocabulary=words, output_sequence_length=LENGTH)
        self.embedding = keras.layers.Embedding(VOCABULARY + 1, 32)
        self.memory = keras.layers.LSTM(32)
        self.score = keras.layers.Dense(1, activation="sigmoid")

    def call(self, text: Any) -> Any:
        return self.score(self.memory(self.embedding(self.words(text))))


def custom_model() -> keras.Model:
    return TextModel()


def loss(labels: Any, predictions: Any) -> Any:
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    return records["text"], tf.cast(records["label"], tf.float32)[:, tf.newaxis]


def eval_metrics_fn() -> dict[str, Any]:
    return {"accuracy": keras.metrics.BinaryAccuracy()}
