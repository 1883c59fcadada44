"""Model files in the style of the first ElasticDL, written for these tests: 17 kinds."""

from __future__ import annotations

import textwrap

_IMPORTS = """
import tensorflow as tf
from elasticdl.python.common.constants import Mode
"""
_IMAGES = """
def loss(labels, predictions):
    labels = tf.reshape(labels, [-1])
    return tf.reduce_mean(
        input_tensor=tf.nn.sparse_softmax_cross_entropy_with_logits(logits=predictions, labels=labels)
    )


def optimizer(lr=0.1):
    return tf.optimizers.SGD(lr)


def dataset_fn(dataset, mode, _):
    def parse(record):
        description = {"image": tf.io.FixedLenFeature([SIDE * SIDE * CHANNELS], tf.float32)}
        if mode != Mode.PREDICTION:
            description["label"] = tf.io.FixedLenFeature([1], tf.int64)
        parsed = tf.io.parse_single_example(record, description)
        image = tf.reshape(parsed["image"] / 255.0, [SIDE, SIDE, CHANNELS])
        if mode == Mode.PREDICTION:
            return {"image": image}
        return {"image": image}, tf.cast(parsed["label"], tf.int32)

    dataset = dataset.map(parse)
    if mode == Mode.TRAINING:
        dataset = dataset.shuffle(buffer_size=64)
    return dataset


def eval_metrics_fn():
    return {
        "accuracy": lambda labels, predictions: tf.equal(
            tf.argmax(predictions, 1, output_type=tf.int32), tf.cast(tf.reshape(labels, [-1]), tf.int32)
        )
    }
"""
_FUNCTIONAL = """
def custom_model():
    inputs = tf.keras.Input(shape=(SIDE, SIDE, CHANNELS), name="image")
    x = tf.keras.layers.Conv2D(4, kernel_size=(3, 3), activation="relu")(inputs)
    x = tf.keras.layers.BatchNormalization()(x)
    x = tf.keras.layers.Flatten()(tf.keras.layers.MaxPooling2D(pool_size=(2, 2))(x))
    return tf.keras.Model(inputs=inputs, outputs=tf.keras.layers.Dense(10)(x), name="images")
"""
_SUBCLASSED = """
class CustomModel(tf.keras.Model):
    def __init__(self, channel_last=True):
        super(CustomModel, self).__init__(name="images")
        self._conv = tf.keras.layers.Conv2D(4, kernel_size=(3, 3), activation="relu")
        self._flatten = tf.keras.layers.Flatten()
        self._dense = tf.keras.layers.Dense(10)

    def call(self, inputs, training=False):
        return self._dense(self._flatten(self._conv(inputs["image"])))


custom_model = CustomModel
"""


def _sized(side: int, channels: int) -> str:
    return f"SIDE, CHANNELS = {side}, {channels}\n"


_SCHEDULED = """
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler


def callbacks():
    def _schedule(model_version):
        return 0.1 if model_version < 100 else 0.01

    return [LearningRateScheduler(_schedule)]
"""
_BINARY = """
def loss(labels, predictions):
    return tf.reduce_mean(
        tf.keras.losses.binary_crossentropy(tf.reshape(labels, [-1, 1]), tf.reshape(predictions, [-1, 1]))
    )


def optimizer(lr=0.01):
    return tf.keras.optimizers.Adam(learning_rate=lr)


def eval_metrics_fn():
    return {"auc": tf.keras.metrics.AUC()}
"""
_COLUMNS = """
def dataset_fn(dataset, mode, metadata):
    def parse(record):
        if mode == Mode.PREDICTION:
            return record
        return record, record.pop("label")

    return dataset.map(parse)
"""
_FEATURE_COLUMNS = """
def get_feature_columns():
    age = tf.feature_column.numeric_column("age")
    education = tf.feature_column.indicator_column(
        tf.feature_column.categorical_column_with_hash_bucket("education", hash_bucket_size=30)
    )
    return [age, education]


def custom_model():
    columns = get_feature_columns()
    education = tf.keras.Input((1,), dtype="string", name="education")
    inputs = {"age": tf.keras.Input((1,), name="age"), "education": education}
    x = tf.keras.layers.DenseFeatures(feature_columns=columns)(inputs)
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid")(x))
"""
_PREPROCESSED = """
from elasticdl_preprocessing.layers import ConcatenateWithOffset, Discretization, Hashing, ToNumber


def custom_model():
    age = tf.keras.Input((1,), dtype="string", name="age")
    education = tf.keras.Input((1,), dtype="string", name="education")
    numbers = Discretization(bins=[20.0, 40.0])(ToNumber(out_type=tf.float32, default_value=0)(age))
    ids = ConcatenateWithOffset(offsets=[0, 3])([numbers, Hashing(num_bins=30)(education)])
    x = tf.keras.layers.Embedding(33, 8)(ids)
    x = tf.keras.layers.Dense(1, activation="sigmoid")(tf.keras.layers.Flatten()(x))
    return tf.keras.Model([age, education], x)
"""
_DEEPFM = """
from tensorflow.keras import backend as K
{imports}

def custom_model(input_dim=100, embedding_dim=4, input_length=3, fc_unit=8):
    inputs = tf.keras.Input(shape=(input_length,), name="feature")
    embeddings = {embedding}(inputs)
    summed = K.sum(embeddings, axis=1)
    second = 0.5 * K.sum(K.square(summed) - K.sum(K.square(embeddings), axis=1), axis=1)
    biases = tf.keras.layers.Flatten()({biases}(inputs))
    first = K.sum(biases, axis=1, keepdims=False)
    deep = tf.keras.layers.Dense(fc_unit)(tf.keras.layers.Flatten()(embeddings))
    logits = tf.keras.layers.Add()([first, second, K.squeeze(tf.keras.layers.Dense(1)(deep), 1)])
    probs = tf.keras.layers.Activation("sigmoid", name="probs")(logits)
    return tf.keras.Model(inputs=inputs, outputs={{"logits": logits, "probs": probs}}, name="deepfm")


def loss(labels, predictions):
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(logits=predictions["logits"], labels=labels))


def optimizer(lr=0.1):
    return tf.keras.optimizers.SGD(learning_rate=lr)


def dataset_fn(dataset, mode, _):
    def parse(record):
        description = {{"feature": tf.io.FixedLenFeature([3], tf.int64)}}
        if mode != Mode.PREDICTION:
            description["label"] = tf.io.FixedLenFeature([1], tf.int64)
        parsed = tf.io.parse_single_example(record, description)
        label = parsed.pop("label", None)
        return (parsed["feature"], label) if mode != Mode.PREDICTION else parsed["feature"]

    return dataset.map(parse)


def eval_metrics_fn():
    return {{
        "logits": {{"accuracy": lambda labels, outputs: tf.equal(
            tf.cast(tf.reshape(outputs, [-1]) > 0.0, tf.int32), tf.cast(tf.reshape(labels, [-1]), tf.int32)
        )}},
        "probs": {{"auc": tf.keras.metrics.AUC()}},
    }}
"""
_IRIS = """
def custom_model():
    inputs = tf.keras.layers.Input(shape=(4, 1), name="input")
    x = tf.keras.layers.Flatten()(inputs)
    return tf.keras.Model(inputs=inputs, outputs=tf.keras.layers.Dense(3, name="output")(x))


def loss(labels, predictions):
    labels = tf.reshape(labels, [-1])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=predictions))


def optimizer(lr=0.1):
    return tf.optimizers.SGD(lr)


def dataset_fn(dataset, mode, metadata):
    def parse(record):
        features = tf.stack([tf.cast(record[name], tf.float32) for name in metadata.column_names[:4]])
        features = tf.reshape(features, [4, 1])
        if mode == Mode.PREDICTION:
            return features
        return features, tf.cast(record["class"], tf.int64)

    return dataset.map(parse)


def eval_metrics_fn():
    return {"accuracy": tf.keras.metrics.SparseCategoricalAccuracy()}
"""
_RESNET = """
from tensorflow.python.keras import backend as K
from tensorflow.python.keras.layers import Conv2D
from tensorflow.python.keras.regularizers import l2

L2 = 1e-4


def custom_model():
    axis = 3 if K.image_data_format() == "channels_last" else 1
    image = tf.keras.Input((8, 8, 3), name="image")
    x = Conv2D(4, 3, kernel_regularizer=l2(L2))(image)
    x = tf.keras.layers.BatchNormalization(axis=axis)(x)
    return tf.keras.Model(image, tf.keras.layers.Dense(10)(tf.keras.layers.GlobalAveragePooling2D()(x)))
"""
_WIDE = """
from elasticdl.python.elasticdl.feature_column import feature_column


def custom_model():
    workclass = tf.feature_column.categorical_column_with_vocabulary_list("workclass", ["Private", "Public"])
    column = feature_column.embedding_column(workclass, dimension=8)
    inputs = {"workclass": tf.keras.Input((1,), dtype="string", name="workclass")}
    return tf.keras.Model(inputs, tf.keras.layers.Dense(1)(tf.keras.layers.DenseFeatures([column])(inputs)))
"""
_NETS = """
def custom_model():
    age = tf.keras.Input((1,), name="age")
    hours = tf.keras.Input((1,), name="hours")
    x = tf.keras.layers.Concatenate()([age, hours])
    x = tf.keras.layers.Dense(8, activation="relu")(x)
    return tf.keras.Model([age, hours], tf.keras.layers.Dense(1, activation="sigmoid")(x))


def learning_rate_scheduler(model_version):
    return 0.1 if model_version < 10 else 0.01
"""
_OLD_RATE = _NETS.partition("\n\ndef learning")[0]
_LIST_FEED = """
def dataset_fn(dataset, mode, metadata):
    def parse(record):
        features = [tf.reshape(tf.cast(record[name], tf.float32), [1]) for name in ("age", "hours")]
        return tuple(features) if mode == Mode.PREDICTION else (tuple(features), record["label"])

    return dataset.map(parse)
"""
_ADAM_LR = _BINARY.replace("learning_rate=lr", "lr=lr")
_KERAS = "tf.keras.layers.Embedding(input_dim, {width}, input_length=input_length)"
_OWN = "Embedding(output_dim={width}, input_dim=input_dim, mask_zero=True, input_length=input_length)"


def _deepfm(layer: str, imports: str = "") -> str:
    return _IMPORTS + _DEEPFM.format(
        imports=imports, embedding=layer.format(width="embedding_dim"), biases=layer.format(width="1")
    )


FILES = {
    "mnist_functional_api": _IMPORTS + _sized(28, 1) + _FUNCTIONAL + _IMAGES,
    "mnist_subclass": _IMPORTS + _sized(28, 1) + _SUBCLASSED + _IMAGES,
    "cifar10_functional_api": _IMPORTS + _sized(8, 3) + _FUNCTIONAL + _IMAGES + _SCHEDULED,
    "cifar10_subclass": _IMPORTS + _sized(8, 3) + _SUBCLASSED + _IMAGES,
    "census_dnn_feature_columns": _IMPORTS + _FEATURE_COLUMNS + _BINARY + _COLUMNS,
    "census_dnn_preprocessing": _IMPORTS + _PREPROCESSED + _BINARY + _COLUMNS,
    "census_dnn_numbers": _IMPORTS + _NETS + _BINARY + _LIST_FEED,
    "census_wide_deep": _IMPORTS + _WIDE + _BINARY + _COLUMNS,
    "deepfm_functional_api": _deepfm(_OWN, "from elasticdl.python.elasticdl.layers.embedding import Embedding"),
    "deepfm_keras_embedding": _deepfm(_KERAS),
    "heart_functional_api": _IMPORTS + _OLD_RATE + _ADAM_LR + _LIST_FEED,
    "iris_dnn": _IMPORTS + _IRIS,
    "resnet50_subclass": _IMPORTS + _sized(8, 3) + _RESNET + _IMAGES,
    "dac_ctr": _IMPORTS + _PREPROCESSED.replace("Hashing,", "Hashing, Normalizer,") + _BINARY + _COLUMNS,
    "sqlflow_dnn": _IMPORTS + _NETS + _BINARY + _LIST_FEED,
    "sqlflow_wide_deep_sequential": _IMPORTS + _FEATURE_COLUMNS + _BINARY + _COLUMNS,
    "sqlflow_wide_deep_functional": _IMPORTS + _PREPROCESSED + _BINARY + _COLUMNS,
}
"""Name -> text."""


def numbered(text: str, part: str) -> int:
    """The number of the first line that has a text in it."""
    return next(number for number, line in enumerate(textwrap.dedent(text).splitlines(), 1) if part in line)
