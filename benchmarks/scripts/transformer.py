# mypy: ignore-errors
"""Text classification with a Transformer block on generated ids; the first argument is the seed."""

import json
import random
import sys

import keras
import numpy as np
from keras import layers, ops

random.seed(int(sys.argv[1]))  # Seeds the weights. set_random_seed() would have fit() shuffle each epoch alike.
rng = np.random.default_rng(0)
WORDS, LENGTH = 500, 32
x = rng.integers(1, WORDS, (1500, LENGTH))
y = ((x < 40).sum(1) > (np.isin(x, range(40, 80))).sum(1)).astype("int64")


class Block(layers.Layer):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attention = layers.MultiHeadAttention(heads, width)
        self.dense = keras.Sequential([layers.Dense(hidden, "relu"), layers.Dense(width)])
        self.norms = [layers.LayerNormalization() for _ in range(2)]
        self.drops = [layers.Dropout(0.1) for _ in range(2)]

    def call(self, inputs, training=False):
        attended = self.norms[0](inputs + self.drops[0](self.attention(inputs, inputs), training=training))
        return self.norms[1](attended + self.drops[1](self.dense(attended), training=training))


class Tokens(layers.Layer):
    def __init__(self):
        super().__init__()
        self.words, self.places = layers.Embedding(WORDS, 16), layers.Embedding(LENGTH, 16)

    def call(self, ids):
        return self.words(ids) + self.places(ops.arange(LENGTH))


inputs = keras.Input((LENGTH,))
hidden = layers.GlobalAveragePooling1D()(Block(16, 2, 32)(Tokens()(inputs)))
outputs = layers.Dense(2, "softmax")(layers.Dropout(0.1)(layers.Dense(20, "relu")(hidden)))
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x[:1200], y[:1200], batch_size=32, epochs=6, validation_data=(x[1200:], y[1200:]))
print("RESULT", json.dumps({name: values[-1] for name, values in history.history.items()}))
