# mypy: ignore-errors
"""The MNIST convnet on generated digits; the first argument is the seed."""

import json
import random
import sys

import keras
import numpy as np
from keras import layers

random.seed(int(sys.argv[1]))  # Seeds the weights. set_random_seed() would have fit() shuffle each epoch alike.
rng = np.random.default_rng(0)
patterns = rng.random((10, 28, 28)) > 0.7
labels = rng.integers(0, 10, 1500)
images = np.clip(patterns[labels] * 0.6 + rng.normal(0, 0.4, (1500, 28, 28)), 0, 1).astype("float32")[..., None]
targets = keras.utils.to_categorical(labels, 10)
model = keras.Sequential(
    [
        keras.Input((28, 28, 1)),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Conv2D(64, 3, activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(10, activation="softmax"),
    ]
)
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
history = model.fit(images[:1200], targets[:1200], batch_size=128, epochs=6, validation_split=0.1)
score = model.evaluate(images[1200:], targets[1200:], verbose=0)
found = {name: values[-1] for name, values in history.history.items()}
print("RESULT", json.dumps(found | {"test_loss": score[0]}))
