# mypy: ignore-errors
"""Wide, deep and cross networks on generated rows of a table, from a tf.data.Dataset; the argument is the seed."""

import json
import random
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers

random.seed(int(sys.argv[1]))  # Seeds the weights. set_random_seed() would have fit() shuffle each epoch alike.
rng = np.random.default_rng(0)
ROWS = 3000
numbers = {f"number_{place}": rng.normal(size=ROWS).astype("float32") for place in range(4)}
texts = {f"kind_{place}": rng.choice(list("abcdefgh"), ROWS) for place in range(3)}
score = numbers["number_0"] + (texts["kind_0"] == "a") * 2 - (texts["kind_1"] == "b") * numbers["number_1"]
target = (score + rng.normal(0, 0.5, ROWS) > 0.3).astype("int64")


def dataset(rows, shuffle):
    columns = {name: column[rows] for name, column in {**numbers, **texts}.items()}
    made = tf.data.Dataset.from_tensor_slices((columns, target[rows]))
    return (made.shuffle(2400) if shuffle else made).batch(64)


inputs = {name: keras.Input((1,), name=name, dtype="float32") for name in numbers}
inputs |= {name: keras.Input((1,), name=name, dtype="string") for name in texts}
lookups = {name: layers.StringLookup(vocabulary=list("abcdefgh"))(inputs[name]) for name in texts}
wide = layers.concatenate(
    [
        *(layers.CategoryEncoding(9, output_mode="one_hot")(one) for one in lookups.values()),
        *(inputs[one] for one in numbers),
    ]
)
embedded = [layers.Flatten()(layers.Embedding(9, 3)(one)) for one in lookups.values()]
start = layers.concatenate([*embedded, *(inputs[one] for one in numbers)])
deep = start
for _ in range(2):
    deep = layers.Dropout(0.1)(layers.ReLU()(layers.BatchNormalization()(layers.Dense(32)(deep))))
cross = start
for _ in range(2):
    cross = start * layers.Dense(start.shape[-1])(cross) + cross
outputs = layers.Dense(2, "softmax")(layers.concatenate([layers.BatchNormalization()(wide), deep, cross]))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.Adam(0.005), keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
history = model.fit(dataset(np.arange(2400), True), epochs=6, validation_data=dataset(np.arange(2400, ROWS), False))
print("RESULT", json.dumps({name: values[-1] for name, values in history.history.items()}))
