"""Which items does a user buy? Two towers for retrieval, trained with the softmax over the items of a batch.

    elasticdl zoo data two_tower purchases
    elasticdl train --model_def=two_tower.custom_model --training_data=purchases/train \
        --validation_data=purchases/test --minibatch_size=128 --num_epochs=3 --output=output

The model gives a vector of the user and a vector of the item. A large product of the two means that they go together.
Predict the vectors of all items once, and look for the largest products with the vector of a user.
"""

import keras
import tensorflow as tf

TOP = 10


def custom_model(users=50_000, items=50_000, width=16):
    """Two towers, each the embedding of an id. Users and items with more columns get more layers there.

    Args:
        users: rows of the users' table; with 50,000 it exceeds the 2 MiB from which on parameter servers keep it by
            rows, and a batch moves only the rows that it needs. A greater id is folded back into the table.
        items: likewise.
        width: of the vectors.
    """

    def tower(name, rows):
        ids = keras.Input((), dtype="int64", name=name)
        return ids, keras.layers.Embedding(rows, width, name=f"{name}_vector")(keras.ops.mod(ids, rows))

    user, user_vector = tower("user", users)
    item, item_vector = tower("item", items)
    outputs = {"user_vector": user_vector, "item_vector": item_vector}
    return keras.Model({"user": user, "item": item}, outputs, name="two_tower")


def scores(items, predictions):
    """The score of each item of the batch for each user, (batch, batch); repeats of a user's own item get none."""
    products = tf.matmul(predictions["user_vector"], predictions["item_vector"], transpose_b=True)
    items = tf.cast(items, tf.int64)
    is_repeated = tf.cast(items[:, tf.newaxis] == items[tf.newaxis], tf.float32) - tf.eye(tf.size(items))
    return products - 1e9 * is_repeated


def loss(labels, predictions):
    """Cross-entropy of each record's own item among the items of its batch, (batch,)."""
    return -tf.linalg.diag_part(tf.nn.log_softmax(scores(labels, predictions)))


def optimizer():
    """Adagrad suits tables in which many rows are rare: its steps do not depend on how often a row was in a batch."""
    return keras.optimizers.Adagrad(1.0)


def feed_batch(records, mode, metadata):
    """Users and items (batch,); the items are the labels, too."""
    features = {name: tf.cast(records[name], tf.int64) for name in ("user", "item")}
    return features if mode == "predict" else (features, features["item"])


def in_top(labels, predictions):
    """Whether a record's own item is among the ten best of its batch, (batch,)."""
    every = scores(labels, predictions)
    better = every > tf.linalg.diag_part(every)[:, tf.newaxis]
    return tf.cast(tf.reduce_sum(tf.cast(better, tf.int32), axis=1) < TOP, tf.float32)


def eval_metrics_fn():
    """Metrics of evaluation. Among 128 items ten are easier to hit than among all, of which ``about.json`` tells."""
    return {"top10_of_batch": in_top}
