"""What a customer buys (one of four) and for how much, from a table of numbers and categories: two outputs."""

from typing import Any

import keras
from keras import ops

NUMBERS, REGIONS, KINDS = 8, 50, 4


def custom_model() -> keras.Model:
    """Outputs ``amount`` (batch, 1) and ``kind``, probabilities (batch, 4)."""
    inputs = {
        "numbers": keras.Input((NUMBERS,), name="numbers"),
        "region": keras.Input((), dtype="int64", name="region"),
    }
    x = keras.layers.Concatenate()([inputs["numbers"], keras.layers.Embedding(REGIONS, 4)(inputs["region"])])
    x = keras.layers.Dense(48, activation="relu")(x)
    x = keras.layers.Dense(24, activation="relu")(x)
    outputs = {
        "amount": keras.layers.Dense(1, name="amount")(x),
        "kind": keras.layers.Dense(KINDS, activation="softmax", name="kind")(x),
    }
    return keras.Model(inputs, outputs)


def _amount_loss(labels: Any, predictions: Any) -> Any:
    return ops.mean(ops.square(labels - predictions), axis=-1)


OUTPUT_LOSSES = {"amount": _amount_loss, "kind": keras.losses.sparse_categorical_crossentropy}
"""What ``compile()`` of a model with several outputs needs in place of ``loss``."""


def loss(labels: dict[str, Any], predictions: dict[str, Any]) -> Any:
    """The sum of both outputs' losses, (batch,)."""
    return sum(each(labels[name], predictions[name]) for name, each in OUTPUT_LOSSES.items())


def optimizer() -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(0.002)


def feed_batch(records: dict[str, Any], mode: str, metadata: Any) -> tuple[Any, Any]:
    features = {"numbers": records["numbers"], "region": records["region"]}
    return features, {"amount": records["amount"][:, None], "kind": records["kind"]}


def eval_metrics_fn() -> dict[str, Any]:
    return {"kind": {"accuracy": keras.metrics.SparseCategoricalAccuracy()}}
