"""Does a person earn over 50K? A wide-and-deep network over numbers and words from CSV.

    elasticdl zoo data census census
    elasticdl train --model_def=census_wide_deep.custom_model --training_data=census/train \
        --validation_data=census/test --num_epochs=3 --output=output

The wide part is linear in single words and in pairs of words (crossings); the deep part embeds words and sees scaled
numbers. Words are looked up inside the model, so the exported model takes them as they are.
"""

import keras
import tensorflow as tf

LABEL = "income_bracket"
POSITIVE = ">50K"
SCALES = {
    "age": (39.0, 14.0),
    "education_num": (10.0, 2.5),
    "capital_gain": (300.0, 2000.0),
    "capital_loss": (90.0, 400.0),
    "hours_per_week": (40.0, 11.0),
}
"""Number column -> (mean, standard deviation), roughly."""
WORDS = {
    "workclass": ["Private", "Self-employed", "Government", "Without-pay"],
    "education": ["School", "High-school", "Some-college", "Bachelors", "Masters", "Doctorate"],
    "marital_status": ["Married", "Never-married", "Divorced", "Widowed"],
    "relationship": ["Husband", "Wife", "Own-child", "Not-in-family", "Unmarried", "Other-relative"],
    "sex": ["Female", "Male"],
}
"""Word column -> all of its words; others count as one unknown word."""
BUCKETS = {"occupation": 64, "native_country": 128}
"""Word column whose words are hashed instead -> number of buckets."""
CROSSINGS = {("education", "occupation"): 1000, ("education", "workclass"): 200}
"""Pair of word columns -> number of buckets."""


def custom_model(width=8, hidden=(64, 32)):
    """Wide and deep.

    Args:
        width: of each embedding.
        hidden: units of the deep part's layers.
    """
    numbers = {name: keras.Input((), name=name) for name in SCALES}
    words = {name: keras.Input((), name=name, dtype="string") for name in (*WORDS, *BUCKETS)}
    ids, sizes = {}, {}
    for name, vocabulary in WORDS.items():
        ids[name] = keras.layers.StringLookup(vocabulary=vocabulary, name=f"{name}_id")(words[name])
        sizes[name] = len(vocabulary) + 1
    for name, buckets in BUCKETS.items():
        ids[name] = keras.layers.Hashing(buckets, name=f"{name}_id")(words[name])
        sizes[name] = buckets
    for pair, buckets in CROSSINGS.items():
        name = "_and_".join(pair)
        ids[name] = keras.layers.HashedCrossing(buckets, name=f"{name}_id")(tuple(words[word] for word in pair))
        sizes[name] = buckets

    wide = [keras.layers.Embedding(sizes[name], 1, name=f"{name}_weight")(ids[name]) for name in ids]
    deep = [keras.layers.Embedding(sizes[name], width, name=f"{name}_vector")(ids[name]) for name in words]
    for name, (mean, deviation) in SCALES.items():
        scaled = keras.layers.Rescaling(1 / deviation, -mean / deviation)(numbers[name])
        deep.append(keras.layers.Reshape((1,))(scaled))
    x = keras.layers.Concatenate()(deep)
    for units in hidden:
        x = keras.layers.Dense(units, activation="relu")(x)
    score = keras.layers.Add()([*wide, keras.layers.Dense(1, name="deep_score")(x)])
    probability = keras.layers.Activation("sigmoid", name="probability")(score)
    return keras.Model(numbers | words, probability, name="census_wide_deep")


def loss(labels, predictions):
    """Cross-entropy of each record, (batch,)."""
    return keras.losses.binary_crossentropy(labels, predictions)


def optimizer():
    """The rate suits batches of 64."""
    return keras.optimizers.Adam(0.001)


def feed_batch(records, mode, metadata):
    """Columns as the model's inputs are called; the label (batch, 1)."""
    labels = records.pop(LABEL) if LABEL in records else None
    features = {name: tf.cast(records[name], tf.float32) for name in SCALES}
    features |= {name: records[name] for name in (*WORDS, *BUCKETS)}
    if mode == "predict":
        return features
    return features, tf.cast(labels == POSITIVE, tf.float32)[:, tf.newaxis]


def eval_metrics_fn():
    """Metrics of evaluation."""
    return {"auc": keras.metrics.AUC(num_thresholds=1000), "accuracy": keras.metrics.BinaryAccuracy()}
