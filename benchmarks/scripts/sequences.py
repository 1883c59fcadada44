# mypy: ignore-errors
"""A behaviour sequence Transformer: ratings of films after the ones before, with side features; argument: the seed."""

import json
import random
import sys

import keras
import numpy as np
from keras import layers, ops

random.seed(int(sys.argv[1]))  # Seeds the weights. set_random_seed() would have fit() shuffle each epoch alike.
rng = np.random.default_rng(0)
USERS, FILMS, ROWS, LENGTH = 80, 60, 2400, 5
taste, kind = rng.normal(size=(USERS, 3)), rng.normal(size=(FILMS, 3))
user, films = rng.integers(0, USERS, ROWS), rng.integers(0, FILMS, (ROWS, LENGTH))
ratings = np.clip(np.round(3 + (taste[user][:, None] * kind[films]).sum(-1)), 1, 5).astype("float32")
age = rng.integers(0, 7, ROWS)
x = {"user": user, "age": age, "films": films[:, :-1], "ratings": ratings[:, :-1], "target": films[:, -1]}
y = ratings[:, -1]

inputs = {
    "user": keras.Input((), name="user", dtype="int64"),
    "age": keras.Input((), name="age", dtype="int64"),
    "films": keras.Input((LENGTH - 1,), name="films", dtype="int64"),
    "ratings": keras.Input((LENGTH - 1,), name="ratings"),
    "target": keras.Input((), name="target", dtype="int64"),
}
table = layers.Embedding(FILMS, 9, name="table")
rated = ops.expand_dims(inputs["ratings"], -1) * (
    table(inputs["films"]) + layers.Embedding(LENGTH, 9)(ops.arange(LENGTH - 1))
)
sequence = ops.concatenate([rated, ops.expand_dims(table(inputs["target"]), 1)], axis=1)
attended = layers.Dropout(0.1)(layers.MultiHeadAttention(3, 9, dropout=0.1)(sequence, sequence))
normed = layers.LayerNormalization()(sequence + attended)
hidden = layers.Flatten()(layers.LayerNormalization()(normed + layers.Dense(9)(layers.LeakyReLU()(normed))))
side = [layers.Embedding(USERS, 9)(inputs["user"]), layers.Embedding(7, 2)(inputs["age"])]
hidden = layers.concatenate([hidden, *side])
for units in (64, 32):
    hidden = layers.Dropout(0.1)(layers.LeakyReLU()(layers.BatchNormalization()(layers.Dense(units)(hidden))))
model = keras.Model(inputs, layers.Dense(1)(hidden))
model.compile(keras.optimizers.Adagrad(0.05), keras.losses.MeanSquaredError(), metrics=["mae"])
rows = slice(0, 2000)
history = model.fit(
    {name: column[rows] for name, column in x.items()},
    y[rows],
    batch_size=64,
    epochs=6,
    validation_data=({name: column[2000:] for name, column in x.items()}, y[2000:]),
)
print("RESULT", json.dumps({name: values[-1] for name, values in history.history.items()}))
